"""The ports of a simulated process: virtual time, seeded chance, calls that fail, a database that may be full."""

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
from crucible.simulation.faults.world.process import WRITE_WEIGHT, Process

T = TypeVar("T")

START = 1_700_000_000.0
"""The virtual world's first instant, in seconds since the epoch."""


AT_ONCE = frozenset({"store", "retention", "secrets", "forecast", "planning"})
"""Lanes of what is at hand: it is done at once, and by nobody once the process is dead."""


class WallClock:
    """The control plane's clock: somebody may set it. `ahead` is by how much it is wrong.

    `stepped_at` is the virtual time at which it was last set by more than what clocks are usually off.
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
        """Somebody sets it, far forward or some minutes back."""
        self.ahead += seconds
        self.stepped_at = self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class RisingIds:
    """As the real ones: ids of one process rise."""

    def __init__(self, clock: WallClock, dice: RandomStream) -> None:
        self._clock = clock
        self._dice = dice
        self._last = (0, 0)

    def new(self, prefix: Prefix) -> str:
        fresh = (int(self._clock.now() * 1000), self._dice.bits(79))
        if fresh[0] <= self._last[0]:
            fresh = (self._last[0], self._last[1] + 1 + self._dice.bits(40))
        self._last = fresh
        return make_id(prefix, *fresh)


class SeededRandom:
    def __init__(self, dice: RandomStream) -> None:
        self._dice = dice

    def uniform(self, low: float, high: float) -> float:
        return self._dice.uniform(low, high)


class WatchedDb(InlineDb):
    """The database all processes share. It outlives them, and checkers may look into it."""

    def query(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        """Rows as they are now, outside of any transaction."""
        return driver_of(self._open()).execute(sql, values).fetchall()

    def read_sync(self, fn: Callable[[Connection], T]) -> T:
        """As `read`, for those who cannot await."""
        return read_snapshot(self._reader, fn).unwrap()

    @property
    def changes(self) -> int:
        """How many rows were ever written; the same number, the same rows."""
        return driver_of(self._open()).total_changes

    @property
    def busy(self) -> bool:
        """Whether a transaction is under way, whose rows `look` would see before they are committed."""
        return bool(driver_of(self._open()).in_transaction)


class ProcessDb:
    """One process's way to the database. `committed` is told after every commit, before the answer."""

    def __init__(self, db: WatchedDb, process: Process, faults: FaultRates, committed: Callable[[], None]) -> None:
        self._db = db
        self._process = process
        self._faults = faults
        self._committed = committed

    async def write(self, fn: Callable[[Connection], T]) -> T:
        await self._turn("write", WRITE_WEIGHT)
        if self._faults.storming("disk"):
            raise DiskFull("The disk that holds the database is full.")
        value = await self._db.write(fn)
        self._committed()
        await self._turn("commit", WRITE_WEIGHT)
        return value

    async def read(self, fn: Callable[[Connection], T]) -> T:
        await self._turn("read", 1)
        return await self._db.read(fn)

    async def close(self) -> None:
        """The database goes on without this process."""

    async def _turn(self, name: str, weight: int) -> None:
        self._process.border(name, weight)
        await virtual_loop().give_way()


class DelayedCalls:
    """Calls that take their time. What was sent takes effect even if nobody is there for the answer."""

    def __init__(self, process: Process, faults: FaultRates, dice: RandomStream) -> None:
        self._process = process
        self._faults = faults
        self._dice = dice

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
            return self._dice.uniform(0.1, 15.0), self._dice.uniform(0.0, 25.0)
        return self._dice.uniform(0.01, 0.4), self._dice.uniform(0.01, 0.4)

    def _arrive(self, lane: str, work: Callable[[], T], answer: asyncio.Future[T], back: float) -> None:
        """The request is at the other side; it may have been under way when its sender died."""
        if not self._process.alive and (lane in AT_ONCE or self._dice.chance(0.5)):
            return
        result: list[T] = []
        error: BaseException | None = None
        try:
            result.append(run_guarded(lane, work))
        except Exception as failed:  # noqa: BLE001  it is told to whoever waits
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
    """Wake-ups of one process, delivered in the same order every time, whatever order sets have today."""

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
