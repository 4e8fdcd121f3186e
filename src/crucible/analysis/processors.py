"""Processors: whether one of them has nothing better to do, by what they did since a moment ago.

The load average tells of the last minute: it calls a computer busy long after the work is done.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import psutil

WINDOW, LONG_AGO = 0.25, 2.0
"""Seconds between two looks: the kernel counts in hundredths of a second, and what was long ago says nothing."""

ENOUGH = 0.15
"""Of one processor. While questions follow each other and each has its spare, about twice as much is left of two."""


def spent_idle() -> float:
    """Seconds of our processors together with nothing to do, or at work that gives way to all other."""
    try:
        each = psutil.cpu_times(percpu=True)
    except OSError:
        return 0.0  # a sandbox does not say
    ours = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(each))
    return sum(t.idle + t.nice + getattr(t, "iowait", 0.0) for n, t in enumerate(each) if n in ours)


class Processors:
    def __init__(self, idle: Callable[[], float] = spent_idle, clock: Callable[[], float] = time.monotonic) -> None:
        self._idle, self._clock = idle, clock
        self._looked, self._spent = clock(), idle()
        self._free = False

    def free(self) -> bool:
        """Whether others leave one for what need not be done now; no where that is not known."""
        now = self._clock()
        passed = now - self._looked
        if passed >= WINDOW:
            spent = self._idle()
            self._free = passed <= LONG_AGO and spent - self._spent >= ENOUGH * passed
            self._looked, self._spent = now, spent
        return self._free
