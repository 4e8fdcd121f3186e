"""Build the agent as one file: `agent-<sha256>.pyz`, a zip of the sources of wire, agent and inside.

Deterministic: the same sources give the same bytes and the same name. An existing file is compared all the same, for a
crash may have left it incomplete.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from crucible import __version__
from crucible.backends.bootstrap import AgentFile, agent_name

ROOMS = ("wire", "agent", "inside")
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MAIN = "from crucible.agent.__main__ import main\n\nraise SystemExit(main())\n"
_PACKAGE = f'"""Crucible, as far as an agent needs it."""\n\n__version__ = "{__version__}"\n'


def build_agent(folder: Path) -> AgentFile:
    """Return the agent's file in `folder`; write it if it is missing or incomplete."""
    data = agent_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    path = folder / agent_name(sha256)
    if not _holds(path, data):
        folder.mkdir(parents=True, exist_ok=True)
        _write(path, data)
    return AgentFile(path, sha256)


def agent_bytes() -> bytes:
    files = {"__main__.py": _MAIN, "crucible/__init__.py": _PACKAGE}
    package = resources.files("crucible")
    for room in ROOMS:
        files.update(_sources(package / room, f"crucible/{room}"))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), files[name], zipfile.ZIP_DEFLATED)
    return b"#!/usr/bin/env python3\n" + out.getvalue()


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except FileNotFoundError:
        return False


def _write(path: Path, data: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _sources(folder: Traversable, prefix: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            found.update(_sources(entry, f"{prefix}/{entry.name}"))
        elif entry.name.endswith(".py"):
            found[f"{prefix}/{entry.name}"] = entry.read_text("utf-8")
    return found
