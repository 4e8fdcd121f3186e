"""Wait for events outside of this process."""

from __future__ import annotations

import time
from collections.abc import Callable

from crucible.wire.process import start_time


def is_running(pid: object) -> bool:
    """Return whether the process runs. A zombie does not."""
    return start_time(int(str(pid))) is not None


def poll(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
