"""Many who follow the same: what they ask at the same moment is read, and written as a frame, once.

An event wakes every socket that follows its job. Each of them asking the database by itself made the last of a thousand
wait for seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from crucible.core.people import Identity
from crucible.server import frames
from crucible.server.ports import JobsPort, LogPage, View, Watch

T = TypeVar("T")

EVENT_PAGE = 200


class Gathering:
    """Joins those who ask the same in one turn of the event loop.

    What is under way is not joined any more: an answer was always begun after it was asked for, so it holds all that
    was true by then.
    """

    def __init__(self) -> None:
        self._open: dict[Hashable, list[asyncio.Future[Any]]] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    async def ask(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """What `read` returns or raises; one who leaves takes it from nobody else."""
        mine: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        joined = self._open.get(key)
        if joined is None:
            joined = self._open[key] = []
            task = asyncio.ensure_future(self._answer(key, read))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        joined.append(mine)
        return await mine

    async def _answer(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> None:
        await asyncio.sleep(0)  # whoever was woken together comes in
        waiting = self._open.pop(key)
        try:
            found = await read()
        except Exception as error:  # noqa: BLE001  it is theirs who asked
            for one in waiting:
                if not one.done():
                    one.set_exception(error)
            return
        for one in waiting:
            if not one.done():
                one.set_result(found)


@dataclass(frozen=True)
class Seen:
    """A job as it was read, and its frame, written when the first of the crowd sends it."""

    view: View

    @cached_property
    def frame(self) -> str:
        return frames.job(self.view)


@dataclass(frozen=True)
class Events:
    """Frames of events in their order; `last` is the cursor of the newest, `more` whether others may follow."""

    frames: tuple[str, ...]
    last: int
    more: bool


class Crowd:
    """The control plane as followers use it, for one of them. Only who may do the same shares answers."""

    def __init__(self, control: JobsPort, gathering: Gathering, who: Identity) -> None:
        self._control = control
        self._gathering = gathering
        self._authority = who.authority

    def watch(self, job: str | None) -> AbstractAsyncContextManager[Watch]:
        return self._control.watch(job)

    async def view(self, job: str) -> Seen:
        async def read() -> Seen:
            return Seen(await self._control.view(job))

        return await self._ask(("view", job), read)

    async def events(self, job: str | None, after: int) -> Events:
        async def read() -> Events:
            items = await self._control.events(job, after=after, limit=EVENT_PAGE)
            cursor = "cursor" if job is None else "n"
            last = items[-1][cursor] if items else after
            return Events(tuple(frames.event(item, cursor) for item in items), last, len(items) == EVENT_PAGE)

        return await self._ask(("events", job, after), read)

    async def logs(self, job: str, *, attempt: int | None, offset: int, limit: int) -> LogPage:
        async def read() -> LogPage:
            return await self._control.logs(job, attempt=attempt, offset=offset, limit=limit, since=None)

        return await self._ask(("logs", job, attempt, offset, limit), read)

    async def metrics(self, job: str, *, series: list[str], points: int) -> View:
        async def read() -> View:
            return await self._control.metrics(job, series=series, points=points)

        return await self._ask(("metrics", job, tuple(series), points), read)

    async def health(self, job: str) -> View:
        return await self._ask(("health", job), lambda: self._control.health(job))

    async def _ask(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        return await self._gathering.ask((self._authority, key), read)
