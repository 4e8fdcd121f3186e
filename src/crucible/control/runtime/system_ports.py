"""The real ports: this computer's clock, randomness, threads and events."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import structlog

from crucible.control.db.clock import boot_seconds
from crucible.control.runtime.ports import run_guarded
from crucible.core.errors import TimedOut
from crucible.core.ids import Prefix, make_id

T = TypeVar("T")

LANE_THREADS = 4
SET_SECONDS = 60.0
"""A larger difference between the two clocks means that the wall clock was set."""

log = structlog.get_logger(__name__)


class SystemClock:
    """The wall clock as it was at the start, advanced by the monotonic clock.

    Setting the computer's clock therefore changes no lease, deadline or wait; stored times follow at the next start.
    """

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = boot_seconds) -> None:
        self._wall = wall
        self._steady = steady
        self._offset = self._logged_offset = wall() - steady()

    def now(self) -> float:
        here = self._steady()
        if abs(self._wall() - here - self._logged_offset) > SET_SECONDS:
            self._log_set(self._wall() - here)
        return self._offset + here

    def steady(self) -> float:
        return self._steady()

    def _log_set(self, offset: float) -> None:
        self._logged_offset = offset
        log.warning(
            "the computer's clock was set",
            seconds=round(offset - self._offset),
            fix="The server ignores the change until it is restarted: `crucible down`, then `crucible up`.",
        )

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SystemIds:
    """Ids of one process always increase, even when the clock is set back, because queues are ordered by id."""

    def __init__(self) -> None:
        self._last = (0, 0)

    def new(self, prefix: Prefix) -> str:
        fresh = (time.time_ns() // 1_000_000, secrets.randbits(79))
        if fresh[0] <= self._last[0]:
            fresh = (self._last[0], self._last[1] + 1 + secrets.randbits(40))
        self._last = fresh
        return make_id(prefix, *fresh)


class SystemRandom:
    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


class ThreadCalls:
    """A small thread pool per lane."""

    def __init__(self, threads: int = LANE_THREADS) -> None:
        self._threads = threads
        self._lanes: dict[str, ThreadPoolExecutor] = {}

    async def run(self, lane: str, work: Callable[[], T], deadline: float) -> T:
        pool = self._lanes.get(lane)
        if pool is None:
            pool = self._lanes[lane] = ThreadPoolExecutor(self._threads, thread_name_prefix=lane)
        try:
            async with asyncio.timeout(deadline):
                return await asyncio.get_running_loop().run_in_executor(pool, run_guarded, lane, work)
        except TimeoutError:
            raise TimedOut(f"{lane} did not respond within {deadline:g} s.", fix="The call will be repeated.") from None

    async def close(self) -> None:
        for pool in self._lanes.values():
            pool.shutdown(wait=False, cancel_futures=True)


class EventListener:
    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def wait(self, timeout: float) -> bool:
        try:
            async with asyncio.timeout(timeout):
                await self.event.wait()
        except TimeoutError:
            return False
        self.event.clear()
        return True


class LocalWakeups:
    """Wake-ups within one process, for a deployment without other processes."""

    def __init__(self) -> None:
        self._listeners: dict[str, set[EventListener]] = {}

    def wake(self, topic: str) -> None:
        for listener in self._listeners.get(topic, ()):
            listener.event.set()

    def subscribe_remote(self, prefix: str, callback: Callable[[str | None], None]) -> None:
        pass

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    @contextmanager
    def listening(self, topic: str) -> Iterator[EventListener]:
        listener = EventListener()
        self._listeners.setdefault(topic, set()).add(listener)
        try:
            yield listener
        finally:
            listeners = self._listeners[topic]
            listeners.discard(listener)
            if not listeners:
                del self._listeners[topic]
