"""Run identical concurrent reads and waits once, for all callers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass
class _Waiters:
    """Futures that wait for one result, and the task that produces it."""

    waiting: set[asyncio.Future[Any]] = field(default_factory=set)
    task: asyncio.Task[None] | None = None

    async def resolve(self, read: Callable[[], Awaitable[Any]]) -> None:
        """Await `read`, and give its result or exception to all callers that wait by then."""
        try:
            result = await read()
        except Exception as error:  # noqa: BLE001  each caller gets it
            for future in self._pending():
                future.set_exception(error)
        else:
            for future in self._pending():
                future.set_result(result)

    def _pending(self) -> list[asyncio.Future[Any]]:
        return [future for future in self.waiting if not future.done()]

    async def join(self) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.add(future)
        try:
            return await future
        finally:
            self.waiting.discard(future)


class Coalescer:
    """Runs each read and each wait once for all concurrent callers. A cancelled caller does not affect the others."""

    def __init__(self) -> None:
        self._reads: dict[Hashable, _Waiters] = {}
        self._waits: dict[Hashable, _Waiters] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def share_read(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """Return what `read` returns, or raise what it raises, for all callers in one turn of the event loop.

        Later callers do not join a read that has begun: each result was read after it was asked for, so it includes
        everything that was written before.
        """
        waiters = self._reads.get(key)
        if waiters is None:
            waiters = self._reads[key] = _Waiters()
            self._begin(self._read(key, waiters, read))
        result: T = await waiters.join()
        return result

    async def _read(self, key: Hashable, waiters: _Waiters, read: Callable[[], Awaitable[Any]]) -> None:
        await asyncio.sleep(0)  # callers woken in the same turn of the loop join before the read begins
        del self._reads[key]
        await waiters.resolve(read)

    async def share_wait(self, key: Hashable, wait: Callable[[], Awaitable[T]]) -> T:
        """Return what `wait` returns, or raise what it raises. It is cancelled when the last of its callers leaves."""
        waiters = self._waits.get(key)
        if waiters is None:
            waiters = self._waits[key] = _Waiters()
            waiters.task = self._begin(self._await(key, waiters, wait))
        try:
            result: T = await waiters.join()
        finally:
            if not waiters.waiting:
                self._close(key, waiters)
        return result

    async def _await(self, key: Hashable, waiters: _Waiters, wait: Callable[[], Awaitable[Any]]) -> None:
        await waiters.resolve(wait)
        self._close(key, waiters)

    def _close(self, key: Hashable, waiters: _Waiters) -> None:
        """Stop others from joining; idempotent."""
        if self._waits.get(key) is waiters:
            del self._waits[key]
            if waiters.task is not None and not waiters.waiting:
                waiters.task.cancel()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
