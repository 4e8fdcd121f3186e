"""Reads shared by the sockets that follow jobs: each value is read, and encoded as a frame, once for all of them.

An event wakes every socket that follows its job. If each of them read the database, the last of a thousand would wait
for seconds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from crucible.control.control_plane import ControlPlane
from crucible.control.telemetry.feed import Watch
from crucible.core.people.identity import Identity
from crucible.core.views.frames import EventFrame, JobFrame
from crucible.core.views.jobs import HealthView, JobView
from crucible.core.views.records import LogPage, MetricsView
from crucible.server.streams.coalesce import Coalescer

T = TypeVar("T")

EVENT_PAGE = 200


@dataclass(frozen=True)
class JobSnapshot:
    """A job as it was read, and its frame, encoded when the first follower sends it."""

    view: JobView

    @cached_property
    def frame(self) -> str:
        return JobFrame(job=self.view).model_dump_json()


@dataclass(frozen=True)
class EventBatch:
    """Frames of events in their order; `last` is the cursor of the newest, `more` whether others may follow."""

    frames: tuple[str, ...]
    last: int
    more: bool


class SharedReads:
    """The reads of one follower. Followers with the same permissions share results."""

    def __init__(self, control: ControlPlane, coalescer: Coalescer, who: Identity) -> None:
        self._control = control
        self._coalescer = coalescer
        self._who = who
        self._authority = who.authority

    def watch(self, job: str | None) -> AbstractAsyncContextManager[Watch]:
        return self._control.jobs.watch(job)

    async def view(self, job: str) -> JobSnapshot:
        async def read() -> JobSnapshot:
            return JobSnapshot(await self._control.jobs.view(self._who, job))

        return await self._ask(("view", job), read)

    async def events(self, job: str | None, after: int) -> EventBatch:
        async def read() -> EventBatch:
            page = await self._control.outputs.events(self._who, job, after=after, limit=EVENT_PAGE)
            frames = [EventFrame(cursor=item.cursor if job is None else item.n, event=item) for item in page.items]
            texts = tuple(frame.model_dump_json() for frame in frames)
            return EventBatch(texts, frames[-1].cursor if frames else after, len(frames) == EVENT_PAGE)

        return await self._ask(("events", job, after), read)

    async def next_events(self, after: int, look: float) -> EventBatch:
        """Return the next events of all jobs once there are any; checks every `look` seconds if no hint comes."""

        async def wait() -> EventBatch:
            async with self._control.jobs.watch(None) as watch:
                while not (batch := await self.events(None, after)).frames:
                    while (hints := await watch.changed(look)) and "event" not in hints:
                        pass
                return batch

        return await self._coalescer.share_wait((self._authority, after), wait)

    async def logs(self, job: str, *, attempt: int | None, offset: int, limit: int) -> LogPage:
        async def read() -> LogPage:
            return await self._control.outputs.logs(
                self._who, job, attempt=attempt, offset=offset, limit=limit, since=None
            )

        return await self._ask(("logs", job, attempt, offset, limit), read)

    async def metrics(self, job: str, *, series: list[str], points: int) -> MetricsView:
        async def read() -> MetricsView:
            return await self._control.outputs.metrics(self._who, job, series=series, points=points)

        return await self._ask(("metrics", job, tuple(series), points), read)

    async def health(self, job: str) -> HealthView:
        return await self._ask(("health", job), lambda: self._control.jobs.health(self._who, job))

    async def _ask(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        return await self._coalescer.share_read((self._authority, key), read)
