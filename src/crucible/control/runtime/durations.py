"""How long something took, counted for those who watch the service."""

from __future__ import annotations

from bisect import bisect_left

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds."""


class DurationHistogram:
    """How many took up to each of the bounds, and all together. Bounded memory, whatever comes."""

    def __init__(self, bounds: tuple[float, ...] = BOUNDS) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    @property
    def counts(self) -> list[int]:
        """For each bound, and last for no bound at all, how many took no longer."""
        sums, so_far = [], 0
        for count in self._counts:
            so_far += count
            sums.append(so_far)
        return sums
