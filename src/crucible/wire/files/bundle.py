"""Bundles: the user's code, packed and named by its hash."""

from __future__ import annotations

import hashlib
import heapq
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from crucible.wire.files.archive import Entry, Folder, Link, pack
from crucible.wire.files.ignore import BUILT_IN, IgnoreRules
from crucible.wire.files.paths import UnsafePath, has_link_loop, is_inside, safe_name

IGNORE_FILE = ".crucibleignore"
DEFAULT_LIMIT = 500_000_000
"""Default limit of the code in one bundle, in bytes."""
MAX_FILES = 100_000

_SHOWN = 10


@dataclass(frozen=True)
class Bundle:
    """A packed bundle on this computer. `sha256` and `size` (bytes) are those of the archive at `path`."""

    sha256: str
    size: int
    path: Path


class BundleTooLarge(ValueError):
    """The folder exceeds the limits of a bundle. `biggest` lists files as (name, bytes), largest first.

    Sizes are before compression. If the number of files is the problem, counting stopped there.
    """

    def __init__(self, size: int, limit: int, biggest: list[tuple[str, int]], *, files: int = 0) -> None:
        over = f"{files:,} files or more" if files else f"{size:,} bytes; at most {limit:,} are allowed"
        biggest_files = ", ".join(f"{name} ({count:,} bytes)" for name, count in biggest)
        super().__init__(
            f"The code to send has {over}. Biggest: {biggest_files}. List what to leave out in {IGNORE_FILE}."
        )
        self.size = size
        self.limit = limit
        self.biggest = biggest
        self.files = files


def collect(
    root: Path,
    *,
    ignore: Iterable[str] = (),
    limit_bytes: int = DEFAULT_LIMIT,
    only: Iterable[str] | None = None,
) -> list[Entry]:
    """Return the entries of a bundle of the folder `root`, sorted by name.

    Built-in patterns, then those of `.crucibleignore`, then `ignore` decide what is left out. `only` names the
    candidates (as git lists them, relative to `root`); without it the folder is walked, and empty folders are kept.
    A name in `only` that no longer exists is skipped; one that is a folder (a submodule) is walked. Sockets, pipes
    and devices are skipped. Raises UnsafePath for a link that points out of `root` and for a name that archives must
    not contain, BundleTooLarge, and OSError for what cannot be read.
    """
    rules = ignore_rules(root, ignore)
    found = _walk(root, "", rules) if only is None else _read_named(root, only, rules)
    return sorted(_check_limits(found, limit_bytes), key=lambda entry: entry.name)


def make_bundle(entries: Iterable[Entry], into: Path) -> Bundle:
    """Pack the entries into `into/<sha256>.tar.gz`; the file appears whole or not at all.

    The same content gives the same bundle, whatever its times and order.
    """
    into.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".packing-", dir=into)
    try:
        with os.fdopen(descriptor, "wb") as file:
            hashing = _HashingWriter(file)
            pack(entries, cast(BinaryIO, hashing))
        path = into / f"{hashing.sha256()}.tar.gz"
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Bundle(hashing.sha256(), hashing.size, path)


def ignore_rules(root: Path, more: Iterable[str] = ()) -> IgnoreRules:
    """Return what is left out of a bundle of `root`: built-in patterns, those of `.crucibleignore`, then `more`."""
    return IgnoreRules([*BUILT_IN, *_ignore_file(root), *more])


def _ignore_file(root: Path) -> list[str]:
    try:
        return (root / IGNORE_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []


def _walk(root: Path, folder: str, rules: IgnoreRules) -> Iterator[Entry]:
    """Yield everything below `folder` that is not ignored; the folder itself if nothing is left."""
    empty = True
    with os.scandir(root / folder) as listing:
        names = sorted(item.name for item in listing)
    for name in names:
        path = f"{folder}/{name}" if folder else name
        mode = (root / path).lstat().st_mode
        if not rules.ignores(path, is_folder=stat.S_ISDIR(mode)):
            for entry in _at(root, path, mode, rules):
                empty = False
                yield entry
    if empty and folder:
        yield Entry(safe_name(folder), Folder())


def _read_named(root: Path, only: Iterable[str], rules: IgnoreRules) -> Iterator[Entry]:
    for name in dict.fromkeys(line.rstrip("/") for line in only):
        path = safe_name(name)
        if not is_inside(root, (root / path).parent):
            raise UnsafePath(path, "leads out of its folder through a link")
        if os.path.lexists(root / path) and not rules.ignores_on_the_way(path):
            yield from _at(root, path, (root / path).lstat().st_mode, rules)


def _at(root: Path, name: str, mode: int, rules: IgnoreRules) -> Iterator[Entry]:
    if stat.S_ISDIR(mode):
        yield from _walk(root, name, rules)
    elif stat.S_ISLNK(mode):
        yield Entry(safe_name(name), _link(root, name))
    elif stat.S_ISREG(mode):
        yield Entry.of_file(safe_name(name), root / name)


def _link(root: Path, name: str) -> Link:
    """Return the link as the shortest relative path to its target, so that it does not leave the folder on its way."""
    path = root / name
    if has_link_loop(path):
        raise UnsafePath(name, "is a link that leads to itself")
    if not is_inside(root, path):
        why = f"is a link to {os.readlink(path)!a}, outside the folder that is sent"
        raise UnsafePath(name, f"{why}. Name it in {IGNORE_FILE}, or pass what it points to as data")
    return Link(os.path.relpath(os.path.realpath(path), os.path.realpath(path.parent)))


def _check_limits(entries: Iterable[Entry], limit: int) -> list[Entry]:
    kept: list[Entry] = []
    size = 0
    for entry in entries:
        kept.append(entry)
        size += entry.size
        if len(kept) > MAX_FILES:
            raise BundleTooLarge(size, limit, _biggest(kept), files=len(kept))
    if size > limit:
        raise BundleTooLarge(size, limit, _biggest(kept))
    return kept


def _biggest(entries: list[Entry]) -> list[tuple[str, int]]:
    top = heapq.nlargest(_SHOWN, entries, key=lambda entry: entry.size)
    return [(entry.name, entry.size) for entry in top]


class _HashingWriter:
    """Counts and hashes what goes through it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        self.size += len(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def sha256(self) -> str:
        return self._digest.hexdigest()
