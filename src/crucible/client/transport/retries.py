"""Trying again, with growing waits, what may be tried again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from crucible.client.transport.clock import MonotonicClock

T = TypeVar("T")


@dataclass(frozen=True)
class RetryPolicy:
    """At most so many `attempts` within so many `seconds`; waits double from `first` up to `longest`.

    A little chance is added to each wait, so that many who were turned away together do not come back together.
    """

    attempts: int = 5
    seconds: float = 20.0
    first: float = 0.1
    longest: float = 2.0
    jitter: float = 0.1
    clock: MonotonicClock = field(default=time, repr=False)

    def run(self, act: Callable[[], T], again: Callable[[Exception], bool]) -> T:
        """What `act` returns. When it raises, `again` says whether to try once more; the last error is raised."""
        deadline = self.clock.monotonic() + self.seconds
        for wait in self._waits():
            try:
                return act()
            except Exception as error:
                if self.clock.monotonic() + wait > deadline or not again(error):
                    raise
            self.clock.sleep(wait)
        return act()

    def _waits(self) -> Iterator[float]:
        for n in range(self.attempts - 1):
            yield min(self.first * 2**n, self.longest) + random.uniform(0, self.jitter)  # noqa: S311  no secret
