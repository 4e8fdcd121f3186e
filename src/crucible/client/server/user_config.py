"""Sets and removes single settings in the user's `config.toml`, leaving the rest of the file as it is."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tomllib
from pathlib import Path

from crucible.core.errors import BadInput, UnknownName
from crucible.settings import NAMES, RULES, load_settings
from crucible.settings.load import BACKENDS, CONNECTED

_KEY = re.compile(r"\s*([A-Za-z0-9_-]+|\"[^\"]*\")\s*=")
_TABLE = re.compile(r"\s*\[")
_BACKEND_TABLE = re.compile(rf"\s*\[\s*{BACKENDS}\s*[.\]]")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
_UNWRITABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Characters that TOML refuses, `str.splitlines` splits at, or UTF-8 cannot encode."""


def set_setting(path: Path, name: str, value: str) -> None:
    """Set a setting. Raises UnknownName, and BadInput for an invalid value; then the file is unchanged."""
    _check_name(name)
    kept, tables = _without(path, name)
    if name == BACKENDS and tables:
        raise BadInput(
            f"{path} has tables [{BACKENDS}…], so it cannot have the plain value `{BACKENDS}` too.",
            fix=f"Put the list into its table [{BACKENDS}]: {CONNECTED} = [...]",
        )
    _replace(path, [*kept, f"{name} = {_as_toml(name, value)}", *tables])


def unset_setting(path: Path, name: str) -> bool:
    """Remove a setting; return whether it was set."""
    _check_name(name)
    kept, tables = _without(path, name)
    if len(kept) + len(tables) == len(_lines(path)):
        return False
    _replace(path, [*kept, *tables])
    return True


def _as_toml(name: str, value: str) -> str:
    """Return the value in TOML: numbers and flags as they are where the setting takes them, else as a string."""
    if value in ("true", "false") or _NUMBER.fullmatch(value):
        with contextlib.suppress(ValueError):
            RULES[name].read(tomllib.loads(f"it = {value}")["it"])
            return value
    # JSON's escapes are those of TOML, but for the pairs that json.dumps writes for characters such as emoji.
    text = json.dumps(value, ensure_ascii=False)
    return _UNWRITABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _without(path: Path, name: str) -> tuple[list[str], list[str]]:
    """Return the lines of the plain values without that of `name`, and the lines of the tables behind them."""
    lines = _lines(path)
    end = next((at for at, line in enumerate(lines) if _TABLE.match(line)), len(lines))
    if any(_TABLE.match(line) and not _BACKEND_TABLE.match(line) for line in lines):
        raise BadInput(
            f"{path} has tables, but settings are plain values.", fix=f"Remove all tables but [{BACKENDS}…]."
        )
    kept = []
    for line in lines[:end]:
        key = _KEY.match(line)
        if key is None or key[1].strip('"') != name:
            kept.append(line)
    return kept, lines[end:]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read.", why=str(error), fix="Correct or remove the file.") from error


def _replace(path: Path, lines: list[str]) -> None:
    """Replace the file if the settings are still valid; only the user may read it, as it may hold a token."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())
    try:
        load_settings(environ={}, folder=path.parent, user_config=fresh)
    except BadInput as error:
        fresh.unlink()
        raise BadInput(
            error.what, why=error.why.replace(str(fresh), str(path)), fix="Give it another value."
        ) from error
    fresh.replace(path)


def _check_name(name: str) -> None:
    if name not in NAMES:
        raise UnknownName("setting", name, NAMES)
