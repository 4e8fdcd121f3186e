"""Notes about files that a job wrote where they are not kept: in its working directory, or empty folders."""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

MAX_ENTRIES = 10_000
MAX_SECONDS = 1.0
NAMED = 3
_TOOL_NAMES = frozenset({"__pycache__", ".git", ".venv", ".ipynb_checkpoints", "node_modules"})
_TOOL_SUFFIXES = (".pyc", ".pyo", ".swp", "~")


@dataclass(frozen=True)
class FolderBaseline:
    """A folder as it was before the job ran. `is_whole` is false if it has more files than are scanned."""

    folder: Path
    files: Mapping[str, tuple[int, int, int]]
    taken: int
    is_whole: bool

    @classmethod
    def take(cls, folder: Path, clock: Callable[[], float] = time.monotonic) -> FolderBaseline:
        scan = _FolderScan(folder, clock)
        files = {name: _mark(info) for name, info in scan.files()}
        return cls(folder, files, time.time_ns(), scan.is_whole)

    def note(self, clock: Callable[[], float] = time.monotonic) -> str | None:
        """Return a sentence about the files that were written since, or None."""
        scan = _FolderScan(self.folder, clock)
        names = [name for name, info in scan.files() if self._is_new(name, info)]
        if not names:
            return None
        some = "" if scan.is_whole else "at least "
        what = "file" if len(names) == 1 else "files"
        were = "was" if len(names) == 1 else "were"
        return (
            f"{some}{len(names)} {what} written to the working directory {were} not kept: {_format_names(names)}. "
            f"Write {'it' if len(names) == 1 else 'them'} to $CRUCIBLE_OUTPUT_DIR."
        )

    def _is_new(self, name: str, info: os.stat_result) -> bool:
        known = self.files.get(name)
        if known is None:
            return self.is_whole or info.st_ctime_ns > self.taken
        return known != _mark(info)


def empty_folders_note(outputs: Path) -> str | None:
    """Return a sentence about empty folders among the outputs, or None: only files are stored."""
    scan = _FolderScan(outputs, time.monotonic)
    for _ in scan.files():
        pass
    if not scan.empty:
        return None
    what = "1 empty folder was" if len(scan.empty) == 1 else f"{len(scan.empty)} empty folders were"
    return f"{what} not kept with the outputs: {_format_names(scan.empty)}."


class _FolderScan:
    """One scan of a folder, breadth first, that ends after MAX_ENTRIES or MAX_SECONDS."""

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._clock = clock
        self.is_whole = True
        self.empty: list[str] = []

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield regular files by name. Links are not followed."""
        seen, ends = 0, self._clock() + MAX_SECONDS
        waiting = deque([""])
        while waiting:
            inside = waiting.popleft()
            entries = _entries(self._folder / inside)
            if inside and not entries:
                self.empty.append(inside)
            for name in entries:
                seen += 1
                if seen > MAX_ENTRIES or self._clock() > ends:
                    self.is_whole = False
                    return
                path = f"{inside}/{name}" if inside else name
                info = None if _is_tool_file(name) else _status(self._folder / path)
                if info is not None and stat.S_ISDIR(info.st_mode):
                    waiting.append(path)
                elif info is not None and stat.S_ISREG(info.st_mode):
                    yield path, info


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:  # removed or made unreadable by the job
        return []


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _is_tool_file(name: str) -> bool:
    """Return whether tools create such files by themselves, so that no note about them is needed."""
    is_cache = name.startswith(".") and name.endswith("cache")
    return name in _TOOL_NAMES or is_cache or name.endswith(_TOOL_SUFFIXES)


def _mark(info: os.stat_result) -> tuple[int, int, int]:
    return info.st_mtime_ns, info.st_size, info.st_ino


def _format_names(names: list[str]) -> str:
    listed = [name if name.isprintable() else ascii(name) for name in names[:NAMED]]
    return ", ".join([*listed, "…"] if len(names) > NAMED else listed)
