"""Durations in histograms, and a database that counts how long its writes take."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from crucible.control.db.port import Db

T = TypeVar("T")

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds."""


class DurationHistogram:
    """A histogram with cumulative counts for each bound and a total, in bounded memory."""

    def __init__(self, bounds: tuple[float, ...] = BOUNDS) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    @property
    def counts(self) -> list[int]:
        """How many took no longer than each bound; the last count is of all."""
        sums, so_far = [], 0
        for count in self._counts:
            so_far += count
            sums.append(so_far)
        return sums


class Now(Protocol):
    def now(self) -> float: ...


class TimedDb:
    """A database that adds the time of each write, until durable or failed, to `writes`."""

    def __init__(self, db: Db, clock: Now) -> None:
        self._db = db
        self._clock = clock
        self.writes = DurationHistogram()

    async def write(self, fn: Callable[[Connection], T]) -> T:
        begun = self._clock.now()
        try:
            return await self._db.write(fn)
        finally:
            self.writes.add(max(self._clock.now() - begun, 0.0))

    async def read(self, fn: Callable[[Connection], T]) -> T:
        return await self._db.read(fn)

    async def close(self) -> None:
        await self._db.close()
