"""Keeps a disk from being filled by what is written to it."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Callable

KEEP_FREE = 256 * 1024**2
"""Bytes that stay free on the disk of a machine, for the output, messages and files of all that run there."""

SMALL_DISK_SHARE = 20
"""On a small disk it is this part of the disk instead: a twentieth."""

_MEASURE_EVERY = 16 * 1024**2
"""After how many bytes the free space is measured again: others write to the disk too."""


class NotEnoughSpace(OSError):
    """`needed` more bytes do not fit; the text says what is needed and free."""

    def __init__(self, folder: Path, needed: int, free: int, kept: int) -> None:
        sizes = f"it needs {_readable(needed)} more, and the disk of {folder} has {_readable(free)} free"
        super().__init__(errno.ENOSPC, f"{sizes}, of which {_readable(kept)} have to stay free")
        self.needed = needed

    def __str__(self) -> str:
        return str(self.strerror)


class DiskSpace:
    """The space of the disk that `folder` is on, taken piece by piece by one writer.

    `usage` returns the bytes of the disk in total, used and free.
    """

    def __init__(self, folder: Path, usage: Callable[[Path], tuple[int, int, int]] = shutil.disk_usage) -> None:
        self._folder = folder
        self._usage = usage
        self._left = 0

    def check(self, size: int) -> None:
        """Raise NotEnoughSpace unless `size` more bytes fit. Takes nothing."""
        if size > self._left:
            self._measure(size)

    def take(self, size: int) -> None:
        """Take the space of `size` bytes that are written next. Raises NotEnoughSpace."""
        if size > self._left:
            self._left = min(self._measure(size), max(size, _MEASURE_EVERY))
        self._left -= size

    def _measure(self, size: int) -> int:
        """Return the bytes that may be written. Raises NotEnoughSpace if they are fewer than `size`."""
        total, _, free = self._usage(self._folder)
        kept = min(KEEP_FREE, total // SMALL_DISK_SHARE)
        if size > free - kept:
            raise NotEnoughSpace(self._folder, size, free, kept)
        return free - kept


def _readable(size: int) -> str:
    return f"{size / 1024**3:.1f} GiB" if size >= 1024**3 else f"{size / 1024**2:.1f} MiB"
