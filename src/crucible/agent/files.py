"""Durable and atomic file writes, and file locks that end with their holder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path

from crucible.wire import process


def sync_folder(folder: Path) -> None:
    """Make created and removed names in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Replace the file atomically, with mode 0600. If `durable`, the content is on disk when this returns."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.replace(temporary, path)
    if durable:
        sync_folder(path.parent)


def write_at(descriptor: int, data: bytes, offset: int) -> None:
    """Write all of the data at the offset. After an OSError any part of it may have been written."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


def write_json(path: Path, value: dict[str, object], *, durable: bool = False) -> None:
    write_file(path, json.dumps(value, indent=1).encode() + b"\n", durable=durable)


def read_json(path: Path) -> dict[str, object] | None:
    """Return the JSON object in the file; None if there is no file or no JSON object in it."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class Lock:
    """An exclusive lock on a file, held until `release` or the end of the process.

    A forked child inherits it: unless the child closes its copy (`close_descriptors`), the lock outlives its holder.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: Path) -> Lock | None:
        """Take the lock; returns None if another process holds it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return cls(descriptor)

    def release(self) -> None:
        os.close(self._descriptor)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock. True if unknown, so that no living process is taken for dead."""
    try:
        return process.is_locked(path)
    except OSError:
        return True


def close_descriptors(keep: frozenset[int]) -> None:
    """Close every descriptor above stderr except `keep`. A forked child does this first."""
    for name in _open_descriptors():
        if name > 2 and name not in keep:
            with contextlib.suppress(OSError):  # one of them was the descriptor of the listing itself
                os.close(name)


def _open_descriptors() -> list[int]:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return [int(name) for name in os.listdir(folder)]
        except (FileNotFoundError, ValueError):
            continue
    return list(range(3, 1024))
