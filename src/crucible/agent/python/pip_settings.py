"""Translate pip's configuration of certificates and package indexes for uv, which does not read it."""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

SYSTEM_FILE = Path("/etc/pip.conf")
_UV_CERTIFICATES = ("UV_SYSTEM_CERTS", "UV_NATIVE_TLS")
"""The same switch in newer and older versions of uv. The older name alone causes a warning."""
_UV_SOURCES = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")


def uv_variables(env: Mapping[str, str], system_file: Path = SYSTEM_FILE) -> dict[str, str]:
    """Return variables that make uv use pip's certificates and indexes. UV_ variables in `env` take precedence."""
    pip = _settings(env, system_file)
    added = {name: "1" for name in _UV_CERTIFICATES if not any(other in env for other in _UV_CERTIFICATES)}
    if "cert" in pip and "SSL_CERT_FILE" not in env:
        added["SSL_CERT_FILE"] = pip["cert"]
    if not any(name in env for name in _UV_SOURCES):
        added.update(_sources(pip))
    return added


def _sources(pip: Mapping[str, str]) -> dict[str, str]:
    lists = {
        "UV_DEFAULT_INDEX": pip.get("index-url", ""),
        "UV_INDEX": " ".join(pip.get("extra-index-url", "").split()),
        "UV_FIND_LINKS": ",".join(pip.get("find-links", "").split()),
        "UV_INSECURE_HOST": " ".join(pip.get("trusted-host", "").split()),
    }
    found = {name: value for name, value in lists.items() if value}
    if found:
        # pip takes the best version from all indexes, but uv by default only searches the first one with the package.
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return found


def _settings(env: Mapping[str, str], system_file: Path) -> dict[str, str]:
    """Return settings by pip's names (`index-url`). Later files override earlier ones, variables override all."""
    found: dict[str, str] = {}
    for path in _files(env, system_file):
        found.update(_read(path))
    for name, value in env.items():
        if name.startswith("PIP_") and value:
            found[name[4:].lower().replace("_", "-")] = value
    return found


def _files(env: Mapping[str, str], system_file: Path) -> Iterator[Path]:
    named = env.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    yield system_file
    if env.get("HOME"):
        home = Path(env["HOME"])
        yield home / ".pip" / "pip.conf"
        yield Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    if named:
        yield Path(named)


def _read(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error):  # pip itself reports it
        return {}
    found: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            found.update({name.replace("_", "-"): value for name, value in parser.items(section) if value})
    return found
