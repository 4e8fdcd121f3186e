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
        """Give the result or the exception of `read` to all that wait by then."""
        try:
            found = await read()
        except Exception as error:  # noqa: BLE001  each caller gets it
            for one in self._undone():
                one.set_exception(error)
        else:
            for one in self._undone():
                one.set_result(found)

    def _undone(self) -> list[asyncio.Future[Any]]:
        return [one for one in self.waiting if not one.done()]

    async def join(self) -> Any:
        mine: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.add(mine)
        try:
            return await mine
        finally:
            self.waiting.discard(mine)


class Coalescer:
    """A caller that is cancelled does not affect the others."""

    def __init__(self) -> None:
        self._asking: dict[Hashable, _Waiters] = {}
        self._awaiting: dict[Hashable, _Waiters] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    async def share_read(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """What `read` returns or raises, for all who ask in one turn of the event loop.

        What is under way is not joined any more: an answer was always begun after it was asked for, so it holds all
        that was true by then.
        """
        party = self._asking.get(key)
        if party is None:
            party = self._asking[key] = _Waiters()
            self._begin(self._answer(key, party, read))
        found: T = await party.join()
        return found

    async def _answer(self, key: Hashable, party: _Waiters, read: Callable[[], Awaitable[Any]]) -> None:
        await asyncio.sleep(0)  # callers woken in the same turn of the loop join before the read begins
        del self._asking[key]
        await party.resolve(read)

    async def share_wait(self, key: Hashable, come: Callable[[], Awaitable[T]]) -> T:
        """What `come` returns or raises, whenever that is; joined until then, and given up when the last one leaves."""
        party = self._awaiting.get(key)
        if party is None:
            party = self._awaiting[key] = _Waiters()
            party.task = self._begin(self._await(key, party, come))
        try:
            found: T = await party.join()
        finally:
            if not party.waiting:
                self._close(key, party)
        return found

    async def _await(self, key: Hashable, party: _Waiters, come: Callable[[], Awaitable[Any]]) -> None:
        await party.resolve(come)
        self._close(key, party)

    def _close(self, key: Hashable, party: _Waiters) -> None:
        """Stop others from joining; idempotent."""
        if self._awaiting.get(key) is party:
            del self._awaiting[key]
            if party.task is not None and not party.waiting:
                party.task.cancel()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task
