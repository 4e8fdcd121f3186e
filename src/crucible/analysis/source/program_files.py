"""Gathering: the files of a program from a folder, as far as they matter here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from crucible.analysis.source.sources import MAX_BYTES, Sources
from crucible.core.errors import BadInput

MAX_FILES = 400
MAX_TOTAL = 20_000_000
READ = frozenset({".py", ".ipynb", ".yaml", ".yml", ".json", ".toml", ".txt", ".cfg"})
_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages", "build", "dist", "venv", "env"})
_CONFIGS = 200_000
"""A text or data file above this is no setting."""


def gathered(path: Path, arguments: tuple[str, ...] = ()) -> Sources:
    """The file and what lies around and below it; what is too much is left out, and said."""
    if not path.is_file():
        raise BadInput(f"{path} is no file.", fix="Name the program that is started.")
    root = path.resolve().parent
    entry = path.resolve().name
    files = {entry: _read(path.resolve())}
    notes: list[str] = []
    total = len(files[entry])
    for found in _around(root):
        if len(files) >= MAX_FILES or total >= MAX_TOTAL:
            notes.append(f"Only the first {len(files)} files around {entry} were read.")
            break
        name = found.relative_to(root).as_posix()
        if name not in files:
            files[name] = _read(found)
            total += len(files[name])
    return Sources(files, entry, arguments, tuple(notes))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{path} cannot be read.", why=str(error), fix="Make it readable for you.") from error


def _around(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        depth = len(Path(folder).relative_to(root).parts)
        folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in _SKIPPED and depth < 4)
        for name in sorted(names):
            found = Path(folder) / name
            if found.suffix in READ and not found.is_symlink() and _small(found):
                yield found


def _small(path: Path) -> bool:
    try:
        return path.stat().st_size <= (MAX_BYTES if path.suffix in (".py", ".ipynb") else _CONFIGS)
    except OSError:
        return False
