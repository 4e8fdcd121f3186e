"""Processors: whether one of them has nothing better to do, by what all of them did of late.

The load average tells of the last minute: it calls a computer busy long after the work is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

WINDOW = 0.25
"""Seconds between two looks at least: the kernel counts in hundredths of a second."""

ENOUGH = 0.15
"""Of one processor. While questions follow each other and each has its spare, about twice as much is left of two."""


def spent_idle() -> float:
    """Seconds of all processors together with nothing to do, or at work that gives way to all other."""
    times = psutil.cpu_times()
    return float(times.idle + times.nice + getattr(times, "iowait", 0.0))


class Processors:
    def __init__(self, idle: Callable[[], float] = spent_idle, clock: Callable[[], float] = time.monotonic) -> None:
        self._idle, self._clock = idle, clock
        self._looked, self._spent = clock(), idle()
        self._free = True

    def free(self) -> bool:
        """Whether others leave one for what need not be done now."""
        now = self._clock()
        if now - self._looked >= WINDOW:
            spent = self._idle()
            self._free = spent - self._spent >= ENOUGH * (now - self._looked)
            self._looked, self._spent = now, spent
        return self._free
