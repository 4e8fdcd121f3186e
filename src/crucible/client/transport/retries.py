"""Retries with exponential backoff."""

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
    """At most `attempts` attempts within `seconds`; waits double from `first` up to `longest`.

    Up to `jitter` seconds are added to each wait, so that clients that failed together do not return together.
    """

    attempts: int = 5
    seconds: float = 20.0
    first: float = 0.1
    longest: float = 2.0
    jitter: float = 0.1
    clock: MonotonicClock = field(default=time, repr=False)

    def run(self, call: Callable[[], T], should_retry: Callable[[Exception], bool]) -> T:
        """Return what `call` returns. Raises its last error when `should_retry` or the attempts say so."""
        deadline = self.clock.monotonic() + self.seconds
        for wait in self._waits():
            try:
                return call()
            except Exception as error:
                if self.clock.monotonic() + wait > deadline or not should_retry(error):
                    raise
            self.clock.sleep(wait)
        return call()

    def _waits(self) -> Iterator[float]:
        for n in range(self.attempts - 1):
            yield min(self.first * 2**n, self.longest) + random.uniform(0, self.jitter)  # noqa: S311  not a secret
