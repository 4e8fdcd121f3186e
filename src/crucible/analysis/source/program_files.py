"""Collects the files of a program from its folder, as far as the analysis can use them."""

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
"""Text and data files above this many bytes are not configuration."""


def gather_sources(path: Path, arguments: tuple[str, ...] = ()) -> Sources:
    """Return the program with the relevant files beside and below it. Notes on the sources say if there were too many.

    Raises BadInput if the program is not a file, or one of the files cannot be read.
    """
    if not path.is_file():
        raise BadInput(f"{path} is not a file.", fix="Give the path of the program to start.")
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
    """Return the beginning of a file: MAX_BYTES, and one more so that a longer file can be told from a whole one."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{path} cannot be read.", why=str(error), fix="Make it readable for your user.") from error


def _around(root: Path) -> Iterator[Path]:
    """Yield the files at and below a folder that the analysis may use, in a stable order."""
    for folder, folders, names in os.walk(root):
        depth = len(Path(folder).relative_to(root).parts)
        folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in _SKIPPED and depth < 4)
        for name in sorted(names):
            found = Path(folder) / name
            if found.suffix in READ and not found.is_symlink() and _small(found):
                yield found


def _small(path: Path) -> bool:
    """Return whether the file's size is within the limit of its kind."""
    try:
        return path.stat().st_size <= (MAX_BYTES if path.suffix in (".py", ".ipynb") else _CONFIGS)
    except OSError:
        return False
