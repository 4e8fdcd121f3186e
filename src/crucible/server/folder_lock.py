"""The lock of a state folder: on the folder itself and on `server.lock` in it.

A lock is on a file, not on its path: a process that replaces the file can lock the new one too. A folder cannot be
swapped in the same way without taking its content along.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crucible.core.errors import Conflict, Trouble
from crucible.wire.files.identity import identity, leads_to

LOCK_FILE = "server.lock"


class AlreadyRunning(Conflict):
    code = "already_running"


class StateFolderLost(Trouble):
    """The path of the state folder leads elsewhere, or nowhere."""

    code = "state_folder_lost"


@dataclass(frozen=True)
class FolderLock:
    """`folder` and `file` are the descriptors that hold the lock."""

    path: Path
    folder: int
    file: int

    @property
    def identity(self) -> str:
        """What tells this folder from every copy of it."""
        return identity(os.fstat(self.folder))

    def check(self) -> None:
        """Raise StateFolderLost unless the path still leads to what is locked."""
        for path, descriptor in ((self.path, self.folder), (self.path / LOCK_FILE, self.file)):
            if not leads_to(path, os.fstat(descriptor)):
                raise StateFolderLost(
                    f"{path} was removed or replaced under the running server.",
                    why="Another server could start on the same state folder, and what is written now would be lost.",
                    fix="Start the server again; if the state folder is gone, restore a backup first.",
                )


@contextlib.contextmanager
def lock_folder(path: Path) -> Iterator[FolderLock]:
    """Lock the folder for this process; the lock ends with the process. Raises AlreadyRunning, OSError."""
    with (
        _locked(path, os.O_RDONLY | os.O_DIRECTORY, path) as folder,
        _locked(path / LOCK_FILE, os.O_RDWR | os.O_CREAT, path) as file,
    ):
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        lock = FolderLock(path, folder, file)
        lock.check()  # it may have been replaced between opening and locking
        yield lock


@contextlib.contextmanager
def _locked(path: Path, flags: int, home: Path) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o600)
    try:
        _lock(descriptor, home)
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int, home: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise AlreadyRunning(
            f"Another server runs on the state folder {home}.",
            why="Only one server at a time can use a state folder.",
            fix="Use that server, or stop it with `crucible down`. For a second server, set CRUCIBLE_HOME.",
            path=str(home),
        ) from error
