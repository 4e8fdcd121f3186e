"""Copy a checkpoint while the program may write to it, and detect whether it did."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from crucible.agent.checkpoints.listing import CheckpointEntry, file_stamp, read_entry
from crucible.agent.checkpoints.truncation import why_folder_torn, why_torn
from crucible.wire.files.archive import Entry as Packed
from crucible.wire.files.archive import Folder, Link, pack
from crucible.wire.files.paths import UnsafePath, safe_name
from crucible.wire.files.tar_stream import BadArchive

_CHUNK = 1024 * 1024


class Changed(Exception):
    """The checkpoint changed since it was listed, or was removed."""


class Torn(Exception):
    """The checkpoint is not complete, or cannot be stored; the text says why."""


@dataclass(frozen=True)
class CheckpointCopy:
    """`path` holds exactly the bytes to upload. `is_ours`: it is a copy, to be removed afterwards."""

    path: Path
    size: int
    sha256: str
    is_ours: bool = True

    def remove(self) -> None:
        if self.is_ours:
            with contextlib.suppress(OSError):
                self.path.unlink()


@dataclass(frozen=True)
class Snapshotter:
    """Copies entries of `folder` into `scratch`, a folder of the attempt."""

    folder: Path
    scratch: Path

    def take(self, entry: CheckpointEntry, *, verify: bool, copy: bool) -> CheckpointCopy:
        """Return a copy of the entry as it was listed. Raises Changed, Torn, or OSError (disk full).

        `verify`: check the structure too. Without `copy` (the program has ended) a file is uploaded from where it is.
        """
        self._check_name(entry.name)
        if not entry.is_folder:
            return self._take_file(entry, verify, copy)
        self._check_same(entry)
        try:
            snapshot = self._take_folder(entry, verify)
        except (Torn, OSError):
            self._check_same(entry)  # if it changed meanwhile, Changed is the better reason
            raise
        try:
            self._check_same(entry)
        except Changed:
            snapshot.remove()
            raise
        return snapshot

    def clear(self) -> None:
        """Remove the copies of a runner that died."""
        self.scratch.mkdir(mode=0o700, exist_ok=True)
        for path in self.scratch.iterdir():
            path.unlink()

    def _check_same(self, entry: CheckpointEntry) -> None:
        if read_entry(self.folder, entry.name) != entry:
            raise Changed(entry.name)

    @staticmethod
    def _check_name(name: str) -> None:
        try:
            safe_name(name)
        except UnsafePath as error:
            raise Torn(f"its name {error.why}") from error

    def _take_file(self, entry: CheckpointEntry, verify: bool, copy: bool) -> CheckpointCopy:
        """Copy the open file, so that a rename over its name does not matter."""
        with _open_regular(self.folder / entry.name) as file:
            _check_same_file(file, entry)
            why = why_torn(file, entry.name) if verify else None
            file.seek(0)
            if why is not None:
                _check_same_file(file, entry)
                raise Torn(why)
            if not copy:
                size, sha256 = _digest(file)
                _check_same_file(file, entry)
                return CheckpointCopy(self.folder / entry.name, size, sha256, is_ours=False)
            with self._new_file(entry) as (out, target):
                shutil.copyfileobj(file, out, _CHUNK)
                _check_same_file(file, entry)
        return _snapshot(target)

    def _take_folder(self, entry: CheckpointEntry, verify: bool) -> CheckpointCopy:
        path = self.folder / entry.name
        why = why_folder_torn(path, entry) if verify else None
        if why is not None:
            raise Torn(why)
        try:
            with self._new_file(entry) as (out, target):
                pack(list(_packed(path, entry)), out, compressed=False)
        except (UnsafePath, BadArchive) as error:
            raise Torn(str(error)) from error
        return _snapshot(target)

    @contextlib.contextmanager
    def _new_file(self, entry: CheckpointEntry) -> Iterator[tuple[BinaryIO, Path]]:
        """Yield a new file in the scratch folder. It is removed after an error."""
        self.scratch.mkdir(mode=0o700, exist_ok=True)
        target = self.scratch / f"{entry.inode}-{entry.newest_ns}"
        try:
            with open(target, "wb") as out:
                yield out, target
        except BaseException:
            with contextlib.suppress(OSError):
                target.unlink()
            raise


def _snapshot(path: Path) -> CheckpointCopy:
    with open(path, "rb") as file:
        return CheckpointCopy(path, *_digest(file))


def _check_same_file(file: BinaryIO, entry: CheckpointEntry) -> None:
    if file_stamp("", os.fstat(file.fileno())) != entry.files[0]:
        raise Changed(entry.name)


def _packed(folder: Path, entry: CheckpointEntry) -> Iterator[Packed]:
    for mark in entry.files:
        path = folder / mark.path
        if mark.path.endswith("/"):
            yield Packed(mark.path[:-1], Folder())
        elif path.is_symlink():
            yield Packed(mark.path, Link(os.readlink(path)))
        else:
            yield Packed.of_file(mark.path, path)


def _open_regular(path: Path) -> BinaryIO:
    """Open a regular file: not a pipe, which would block, and not a link."""
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb")
    except FileNotFoundError as error:
        raise Changed(path.name) from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise Changed(path.name)
    return file


def _digest(file: BinaryIO) -> tuple[int, str]:
    found, size = hashlib.sha256(), 0
    for chunk in iter(lambda: file.read(_CHUNK), b""):
        found.update(chunk)
        size += len(chunk)
    return size, found.hexdigest()
