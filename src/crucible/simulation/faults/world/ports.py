"""The ports of a simulated server: virtual time, seeded randomness, calls that fail, a disk that may be full."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import TypeVar

from sqlalchemy import Connection

from crucible.control.db.sqlite.connection import driver_of
from crucible.control.db.sqlite.inline import InlineDb
from crucible.control.db.sqlite.transaction import read_snapshot
from crucible.control.runtime.ports import run_guarded
from crucible.control.runtime.system_ports import EventListener
from crucible.core.errors import DiskFull, TimedOut
from crucible.core.ids import Prefix, make_id
from crucible.simulation.faults.fault_rates import FaultRates, RandomStream
from crucible.simulation.faults.virtual_loop import virtual_loop
from crucible.simulation.faults.world.process import WRITE_WEIGHT, SimulatedProcess

T = TypeVar("T")

START = 1_700_000_000.0
"""Start of virtual time, in seconds since the epoch."""


AT_ONCE = frozenset({"store", "retention", "secrets", "forecast", "planning"})
"""Lanes of calls inside the process: they take no time, and never run after it died."""


class WallClock:
    """The control plane's clock, which may be wrong by `ahead` seconds.

    `stepped_at` is the virtual time of its last large step.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.ahead = 0.0
        self.stepped_at = -math.inf

    def now(self) -> float:
        return START + self._loop.time() + self.ahead

    def steady(self) -> float:
        return self._loop.time()

    def step(self, seconds: float) -> None:
        """Set the clock forward or back, and remember when."""
        self.ahead += seconds
        self.stepped_at = self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class RisingIds:
    """Makes ids that rise within one process, like the real ones."""

    def __init__(self, clock: WallClock, rng: RandomStream) -> None:
        self._clock = clock
        self._rng = rng
        self._last = (0, 0)

    def new(self, prefix: Prefix) -> str:
        parts = (int(self._clock.now() * 1000), self._rng.bits(79))
        if parts[0] <= self._last[0]:
            parts = (self._last[0], self._last[1] + 1 + self._rng.bits(40))
        self._last = parts
        return make_id(prefix, *parts)


class SeededRandom:
    """The random port over a seeded stream."""

    def __init__(self, rng: RandomStream) -> None:
        self._rng = rng

    def uniform(self, low: float, high: float) -> float:
        return self._rng.uniform(low, high)


class WatchedDb(InlineDb):
    """The database that all processes share. It outlives them, and checkers may read it at any time."""

    def query(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        """Return rows as they are now, uncommitted ones included."""
        return driver_of(self._open()).execute(sql, values).fetchall()

    def read_sync(self, fn: Callable[[Connection], T]) -> T:
        """Like `read`, for callers that cannot await."""
        return read_snapshot(self._reader, fn).unwrap()

    @property
    def changes(self) -> int:
        """Number of rows ever written: while it stays the same, so do the rows."""
        return driver_of(self._open()).total_changes

    @property
    def busy(self) -> bool:
        """Whether a transaction is open, whose rows `query` would return before they are committed."""
        return bool(driver_of(self._open()).in_transaction)


class ProcessDb:
    """The database port of one process. `on_commit` is called after every commit, before `write` returns."""

    def __init__(
        self, db: WatchedDb, process: SimulatedProcess, faults: FaultRates, on_commit: Callable[[], None]
    ) -> None:
        self._db = db
        self._process = process
        self._faults = faults
        self._on_commit = on_commit

    async def write(self, fn: Callable[[Connection], T]) -> T:
        await self._turn("write", WRITE_WEIGHT)
        if self._faults.storming("disk"):
            raise DiskFull("The disk that holds the database is full.")
        value = await self._db.write(fn)
        self._on_commit()
        await self._turn("commit", WRITE_WEIGHT)
        return value

    async def read(self, fn: Callable[[Connection], T]) -> T:
        await self._turn("read", 1)
        return await self._db.read(fn)

    async def close(self) -> None:
        """Do nothing: the database outlives this process."""

    async def _turn(self, name: str, weight: int) -> None:
        self._process.border(name, weight)
        await virtual_loop().give_way()


class DelayedCalls:
    """Calls that take virtual time. A sent call takes effect even after its caller timed out or died."""

    def __init__(self, process: SimulatedProcess, faults: FaultRates, rng: RandomStream) -> None:
        self._process = process
        self._faults = faults
        self._rng = rng

    async def run(self, lane: str, work: Callable[[], T], deadline: float) -> T:
        self._process.border(f"call to {lane}", WRITE_WEIGHT)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        away, back = self._times(lane)
        loop.call_later(away, self._arrive, lane, work, answer, back, context=Context())
        try:
            async with asyncio.timeout(deadline):
                result = await answer
        except TimeoutError:
            raise TimedOut(f"{lane} did not answer within {deadline:g} s.") from None
        self._process.border(f"answer of {lane}", WRITE_WEIGHT)
        return result

    async def close(self) -> None:
        pass

    def _times(self, lane: str) -> tuple[float, float]:
        if lane in AT_ONCE:
            return 0.001, 0.0
        if self._faults.strikes("call.slow") or self._faults.storming(f"slow {lane}"):
            return self._rng.uniform(0.1, 15.0), self._rng.uniform(0.0, 25.0)
        return self._rng.uniform(0.01, 0.4), self._rng.uniform(0.01, 0.4)

    def _arrive(self, lane: str, work: Callable[[], T], answer: asyncio.Future[T], back: float) -> None:
        """Run the call at its arrival. If its sender died, it may have been lost before it was sent."""
        if not self._process.alive and (lane in AT_ONCE or self._rng.chance(0.5)):
            return
        result: list[T] = []
        error: BaseException | None = None
        try:
            result.append(run_guarded(lane, work))
        except Exception as failed:  # noqa: BLE001  the caller gets it
            error = failed
        asyncio.get_running_loop().call_later(back, _give, answer, result, error, context=Context())


def _give(answer: asyncio.Future[T], result: list[T], error: BaseException | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result[0])


class OrderedWakeups:
    """Wake-ups of one process, delivered in sorted order, so that runs do not depend on the order of sets."""

    def __init__(self) -> None:
        self._listeners: dict[str, dict[EventListener, None]] = {}
        self._woken: set[str] = set()

    def wake(self, topic: str) -> None:
        if not self._woken:
            asyncio.get_running_loop().call_soon(self._deliver)
        self._woken.add(topic)

    def subscribe_remote(self, prefix: str, tell: Callable[[str | None], None]) -> None:
        pass

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    @contextmanager
    def listening(self, topic: str) -> Iterator[EventListener]:
        listener = EventListener()
        self._listeners.setdefault(topic, {})[listener] = None
        try:
            yield listener
        finally:
            del self._listeners[topic][listener]

    def _deliver(self) -> None:
        woken, self._woken = sorted(self._woken), set()
        for topic in woken:
            for listener in self._listeners.get(topic, ()):
                listener.event.set()
