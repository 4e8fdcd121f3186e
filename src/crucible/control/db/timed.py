"""A database that knows how long its writes took."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from crucible.control.db.port import Db
from crucible.control.runtime.durations import DurationHistogram

T = TypeVar("T")


class Now(Protocol):
    def now(self) -> float: ...


class TimedDb:
    """Any database, with `writes`: from the wish to write until it was durable or had failed."""

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
