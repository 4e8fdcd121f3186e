"""Hold the lock on a file, against other processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

_RETRY_SECONDS = 0.02


@contextlib.contextmanager
def hold_lock(path: Path, seconds: float) -> Iterator[None]:
    """Hold the lock on a file, created if needed. Raises TimeoutError if another process holds it that long.

    Raises FileNotFoundError if the folder is gone.
    """
    until = time.monotonic() + seconds
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if _try_lock(descriptor, path):
                yield
                return
        finally:
            os.close(descriptor)
        if time.monotonic() >= until:
            raise TimeoutError(f"{path} is held by another process")
        time.sleep(_RETRY_SECONDS)


def _try_lock(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A holder may remove the file: a lock on a removed file guards nothing, so open the new one.
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False
