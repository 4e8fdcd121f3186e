"""Notices that a machine's folder is gone: from then on nothing can be saved or reported."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Callable

LOOK_SECONDS = 1.0
LOST_SECONDS = 5.0
"""How long the folder must be gone, so that it can be moved and a link put in its place."""


class FolderWatch:
    """Watches the folder that the path leads to now. Keeps it open, so that no other gets its inode."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self._look_at = 0.0
        self._gone_since: float | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the path leads nowhere, or to another folder. False if that cannot be found out."""
        try:
            return not os.path.samestat(os.stat(self._path), os.fstat(self._descriptor))
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False

    def is_lost(self) -> bool:
        """Return whether it has been gone for a while. Call it often; it looks once a second."""
        now = self._clock()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            if not self.is_gone:
                self._gone_since = None
            elif self._gone_since is None:
                self._gone_since = now
        return self._gone_since is not None and now - self._gone_since >= LOST_SECONDS
