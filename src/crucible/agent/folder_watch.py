"""Notices that a machine's folder is gone: from then on nothing can be saved or reported."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Callable

from crucible.wire.files.identity import leads_to

LOOK_SECONDS = 1.0
WAIT_SECONDS = 0.1
LOST_SECONDS = 5.0
"""How long the folder must be gone, so that it can be moved and a link put in its place."""


class MachineFolderWatch:
    """Watches the folder that the path leads to now. Keeps it open, so that no other gets its inode. Thread-safe."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self._guard = threading.Lock()
        self._look_at = 0.0
        self._gone_since: float | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the path leads nowhere, or to another folder. False if that cannot be found out."""
        return not leads_to(self._path, os.fstat(self._descriptor), if_unknown=True)

    def is_lost(self) -> bool:
        """Return whether it has been gone for a while. Call it often; it looks once a second."""
        with self._guard:
            now = self._clock()
            if now >= self._look_at:
                self._look_at = now + LOOK_SECONDS
                if not self.is_gone:
                    self._gone_since = None
                elif self._gone_since is None:
                    self._gone_since = now
            return self._gone_since is not None and now - self._gone_since >= LOST_SECONDS

    def wait_until_known(self) -> bool:
        """Wait until the folder is there or lost, and return whether it is lost."""
        while self.is_gone:
            if self.is_lost():
                return True
            time.sleep(WAIT_SECONDS)
        with self._guard:
            self._gone_since = None
        return False
