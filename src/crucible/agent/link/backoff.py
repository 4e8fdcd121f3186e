"""Waits between retries."""

from __future__ import annotations

import random
from typing import Callable

FIRST = 0.1
MOST = 5.0


class Backoff:
    """Doubles from 0.1 to 5 seconds, with jitter so that many agents do not retry at the same instant."""

    def __init__(self, first: float = FIRST, most: float = MOST, chance: Callable[[], float] = random.random) -> None:
        self._first = first
        self._most = most
        self._chance = chance
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def next(self) -> float:
        """Return the seconds to wait after one more failure: between half and all of the current step."""
        step = min(self._most, self._first * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return step * (0.5 + 0.5 * self._chance())
