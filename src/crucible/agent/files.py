"""Files that must survive a crash, and locks that end with their holder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path

from crucible.wire import process


def sync_folder(folder: Path) -> None:
    """Make names created in or removed from the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Replace the file as a whole: a reader sees the old content or the new. Mode 0600.

    With `durable` it is on disk when this returns.
    """
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
    """All of the data at this place in the file. Raises OSError; then any part of it may be there."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


def write_json(path: Path, value: dict[str, object], *, durable: bool = False) -> None:
    write_file(path, json.dumps(value, indent=1).encode() + b"\n", durable=durable)


def read_json(path: Path) -> dict[str, object] | None:
    """The object in the file, or None when it is absent or no JSON object."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class Lock:
    """An exclusive lock on a file, held until `release` or the end of the process.

    A forked child shares it: unless the child closes its copy (`close_descriptors`), the lock outlives its
    holder.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: Path) -> Lock | None:
        """The lock, or None when somebody else holds it."""
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
    """Whether somebody holds the lock now. True also where that cannot be found out: nobody is taken for dead."""
    try:
        return process.is_locked(path)
    except OSError:
        return True


def close_descriptors(keep: frozenset[int]) -> None:
    """Close everything above stderr but `keep`: for a forked child, before it does anything else."""
    for name in _open_descriptors():
        if name > 2 and name not in keep:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed already
                os.close(name)


def _open_descriptors() -> list[int]:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return [int(name) for name in os.listdir(folder)]
        except (FileNotFoundError, ValueError):
            continue
    return list(range(3, 1024))
