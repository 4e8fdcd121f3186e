"""The temporary file of an upload: hashed and counted as it grows, then handed over complete or removed."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from io import FileIO
from pathlib import Path
from typing import TypeVar

import structlog

from crucible.core.errors import DiskFull, Trouble

SYNC_EVERY = 64 * 1024 * 1024

T = TypeVar("T")
log = structlog.get_logger(__name__)


class UploadFile:
    """The file of one upload. `write`, `hand_over` and `remove` block: threads call them, one at a time.

    A thread cannot be stopped. A caller that gives up waiting for one calls `abandon`, which never waits: the thread
    finishes its call and then removes the file itself, so no file is closed during a write.
    """

    def __init__(self, make: Callable[[], tuple[FileIO, Path]]) -> None:
        self._make = make
        self._file: FileIO | None = None
        self._path: Path | None = None
        self._hash = hashlib.sha256()
        self._unsynced = 0
        self._lock = threading.Lock()
        self._busy = False
        self._abandoned = False
        self.size = 0

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def write(self, pieces: Sequence[bytes]) -> None:
        """Append. Raises DiskFull, or Trouble."""
        with self._working():
            if self._file is None:
                self._file, self._path = self._make()
            for piece in pieces:
                self._append(self._file, piece)
            if self._unsynced >= SYNC_EVERY:
                # Otherwise a slow disk shows only at the end, in one sync of everything that outlasts its deadline.
                os.fsync(self._file.fileno())
                self._unsynced = 0

    def hand_over(self, take: Callable[[Path], T]) -> T:
        """Return the result of `take`, which moves the finished file away. Call it after at least one `write`."""
        with self._working():
            assert self._file is not None
            assert self._path is not None
            self._file.close()
            taken = take(self._path)
            self._path = None
            return taken

    def abandon(self) -> bool:
        """Give the upload up; return whether the caller must `remove` the file, because no thread will."""
        with self._lock:
            self._abandoned = True
            return not self._busy and self._path is not None

    def remove(self) -> None:
        if self._file is None or self._path is None:
            return
        try:
            with closing(self._file):
                self._path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("an upload that was given up cannot be removed", path=str(self._path), why=str(error))

    def _append(self, file: FileIO, piece: bytes) -> None:
        rest = memoryview(piece)
        while rest:
            rest = rest[file.write(rest) :]
        self._hash.update(piece)
        self.size += len(piece)
        self._unsynced += len(piece)

    @contextmanager
    def _working(self) -> Iterator[None]:
        with self._lock:
            if self._abandoned:
                raise Trouble("The upload was given up.", fix="Send it again.")
            self._busy = True
        try:
            with translate_disk_errors():
                yield
        finally:
            if self._done():
                self.remove()

    def _done(self) -> bool:
        """End a call; return whether the upload was abandoned during it."""
        with self._lock:
            self._busy = False
            return self._abandoned


@contextmanager
def translate_disk_errors() -> Iterator[None]:
    """Raise OSError as DiskFull or Trouble with a fix, before it leaves the thread."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        kind = DiskFull if full else Trouble
        fix = "Free space where CRUCIBLE_HOME is." if full else "Check the disk where CRUCIBLE_HOME is."
        raise kind("The upload could not be written.", why=str(error), fix=fix) from error
