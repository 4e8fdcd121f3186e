"""Find the files that a job made or changed in its working directory: outputs, wherever the program wrote them."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from crucible.agent.files import read_json, write_json
from crucible.agent.runner.output_files import OutputFile
from crucible.wire.files.paths import is_inside

MAX_ENTRIES = 1_000_000
"""Files and folders that one scan looks at."""

Stamp = tuple[int, int, int]
"""Time of the last change, size and inode."""

_TOOL_NAMES = frozenset({"__pycache__", ".git", ".hg", ".svn", ".venv", ".ipynb_checkpoints", "node_modules"})
_TOOL_SUFFIXES = (".pyc", ".pyo", ".swp", "~")
_CACHE_TAG = b"Signature: 8a477f597d28d172789f06886806bc55"
"""Begins the file CACHEDIR.TAG by which pip, Hugging Face, pytest and others mark their caches."""
_CORE_NAME = re.compile(r"core(\.\d+)?")
_ELF_CORE = 4


@dataclass(frozen=True)
class ChangedFiles:
    """`files` are the smallest ones, smallest first; `others` counts the rest. `is_whole`: all entries were seen."""

    files: tuple[OutputFile, ...] = ()
    others: int = 0
    is_whole: bool = True


@dataclass(frozen=True)
class StagedFiles:
    """The working directory as it was before the job ran.

    `at_ns` tells what is new among the entries that the scan did not reach; None if it reached all of them.
    """

    folder: Path
    stamps: Mapping[str, Stamp]
    at_ns: int | None = None

    @classmethod
    def scan(cls, folder: Path) -> StagedFiles:
        scan = _Scan(folder)
        stamps, newest = {}, 0
        for name, info in scan.files():
            stamps[name] = _stamp(info)
            newest = max(newest, info.st_ctime_ns)
        return cls(folder, stamps, None if scan.is_whole else newest)

    @classmethod
    def read(cls, path: Path) -> StagedFiles | None:
        """Return what `write` wrote; None if the job's program was never about to start, or runs in place."""
        doc = read_json(path)
        if doc is None:
            return None
        stamps, at_ns = doc["stamps"], doc["at_ns"]
        assert isinstance(stamps, dict)
        assert at_ns is None or isinstance(at_ns, int)
        return cls(Path(str(doc["folder"])), {name: tuple(stamp) for name, stamp in stamps.items()}, at_ns)

    def write(self, path: Path) -> None:
        """Keep it for a later runner, which finishes the attempt if this one dies."""
        write_json(path, {"folder": str(self.folder), "at_ns": self.at_ns, "stamps": dict(self.stamps)})

    def changed(self, most: int, patterns: Sequence[str] = ("*",)) -> ChangedFiles:
        """Return the files that are new or changed since and match a pattern, at most `most` of them."""
        scan = _Scan(self.folder)
        count = 0

        def changed() -> Iterator[tuple[int, str]]:
            nonlocal count
            for name, info in scan.files():
                if self._is_new(name, info) and any(matches(name, pattern) for pattern in patterns):
                    count += 1
                    yield info.st_size, name

        smallest = heapq.nsmallest(most, changed())
        files = tuple(OutputFile(name, self.folder / name, self.folder, asked_for=False) for _, name in smallest)
        return ChangedFiles(files, count - len(files), scan.is_whole)

    def _is_new(self, name: str, info: os.stat_result) -> bool:
        known = self.stamps.get(name)
        if known is None:
            return self.at_ns is None or info.st_ctime_ns > self.at_ns
        return tuple(known) != _stamp(info)


def matches(name: str, pattern: str) -> bool:
    """Return whether a pattern chooses the file, by its own name or path or by that of a folder around it.

    A pattern with a slash inside is compared with paths, one without with single names. `*` also matches slashes.
    """
    pattern = pattern.rstrip("/")
    parts = name.split("/")
    if "/" not in pattern:
        return any(fnmatchcase(part, pattern) for part in parts)
    paths = itertools.accumulate(parts, lambda folder, part: f"{folder}/{part}")
    return any(fnmatchcase(path, pattern.removeprefix("./")) for path in paths)


class _Scan:
    """One scan of a folder, breadth first, without what tools keep there for themselves. Names are as on the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.is_whole = True

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield regular files, and links to some inside the folder, with the state of what is linked."""
        waiting, seen = [""], 0
        while waiting:
            below: list[str] = []
            for inside in waiting:
                for entry in _entries(self._folder / inside):
                    seen += 1
                    if seen > MAX_ENTRIES:
                        self.is_whole = False
                        return
                    name = f"{inside}/{entry.name}" if inside else entry.name
                    if _is_tool_name(entry.name):
                        continue
                    with contextlib.suppress(OSError):  # removed meanwhile, or a link that leads nowhere
                        if entry.is_dir(follow_symlinks=False):
                            below += [] if _is_tool_folder(Path(entry.path)) else [name]
                        elif self._is_kept(entry):
                            yield name, entry.stat()
            waiting = below

    def _is_kept(self, entry: os.DirEntry[str]) -> bool:
        if not stat.S_ISREG(entry.stat().st_mode) or _is_core_dump(entry):
            return False
        return not entry.is_symlink() or is_inside(self._folder, entry.path)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:  # removed or made unreadable by the job
        return []


def _is_tool_name(name: str) -> bool:
    is_cache = name.startswith(".") and name.endswith("cache")
    return name in _TOOL_NAMES or is_cache or name.endswith(_TOOL_SUFFIXES)


def _is_tool_folder(folder: Path) -> bool:
    """Return whether it is a virtual environment or is marked as a cache."""
    return os.path.exists(folder / "pyvenv.cfg") or _begins_with(folder / "CACHEDIR.TAG", _CACHE_TAG)


def _is_core_dump(entry: os.DirEntry[str]) -> bool:
    if _CORE_NAME.fullmatch(entry.name) is None:
        return False
    start = _start(Path(entry.path), 18)
    return start[:4] == b"\x7fELF" and _ELF_CORE in start[16:18]


def _begins_with(path: Path, start: bytes) -> bool:
    return _start(path, len(start)) == start


def _start(path: Path, size: int) -> bytes:
    """Return the first bytes of a file; none if it cannot be read. A named pipe does not block."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            return file.read(size) or b""
    except OSError:
        return b""


def _stamp(info: os.stat_result) -> Stamp:
    return info.st_mtime_ns, info.st_size, info.st_ino
