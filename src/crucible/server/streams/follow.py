"""Follow jobs over a socket: first what the client missed, then what happens.

A follower pulls: it reads the next piece only when the client has taken the last one, so a slow client costs no
memory. A client that takes nothing for `StreamTiming.send` seconds is closed with 1013 and resumes from its cursors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from crucible.control.telemetry.feed import Watch
from crucible.core.views.frames import Cursors, Frame, HealthFrame, JobFrame, ProgressFrame
from crucible.core.views.jobs import JobView, ProgressView
from crucible.core.views.records import LogPage
from crucible.server.streams import frames
from crucible.server.streams.shared_reads import JobSnapshot, SharedReads

ALL = frozenset({"event", "log", "points", "progress"})
LOG_PAGE = 128 * 1024
LOG_PAGES = 16
AT_ONCE = 0.001
"""The shortest wait in seconds; a hint that is there already is still received."""
POINTS = 500
"""Number of points that draw a series."""
FEW, MANY = 16, 1024
"""Minimum and maximum number of last points that are read to continue a series."""


@dataclass(frozen=True)
class StreamTiming:
    """Timings of a stream in seconds.

    `send`, `close`: how long a frame and a close may take. `look`, `points`, `health`: how often to read without a
    hint. `recheck`: how often to check that the client may still read. `settle`: how long the log of an ended job may
    take to be complete, checked every `look_at_end`.
    """

    send: float = 10.0
    close: float = 20.0
    look: float = 15.0
    points: float = 0.5
    settle: float = 10.0
    health: float = 15.0
    look_at_end: float = 0.2
    recheck: float = 15.0


PATIENCE = 0.9
"""The part of the deadline that each frame has at least."""


class ReaderTooSlow(Exception):
    """The client read nothing for too long."""


class Socket(Protocol):
    async def send_text(self, data: str) -> None: ...


class FrameSender:
    """Sends frames one by one, each within the deadline."""

    def __init__(self, socket: Socket, seconds: float) -> None:
        self._socket = socket
        self._seconds = seconds

    async def send(self, messages: Iterable[Frame | str]) -> None:
        """Send frames; those that followers share come as text. One timer serves many frames."""
        now = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(self._seconds) as limit:  # wait_for may swallow a cancellation
                due = now() + self._seconds
                for message in messages:
                    await self._socket.send_text(message if isinstance(message, str) else message.model_dump_json())
                    if due - now() < self._seconds * PATIENCE:
                        due = now() + self._seconds
                        limit.reschedule(due)
        except TimeoutError as error:
            raise ReaderTooSlow from error


class AllJobsFollower:
    """Follows the events of all jobs, without end."""

    def __init__(self, reads: SharedReads, sender: FrameSender, after: int, timing: StreamTiming) -> None:
        self._reads = reads
        self._sender = sender
        self._after = after
        self._timing = timing

    async def run(self) -> None:
        while True:
            batch = await self._reads.next_events(self._after, self._timing.look)
            await self._sender.send(batch.frames)
            self._after = batch.last


class JobFollower:
    """Follows one job, from the cursors on, until it has ended and everything was sent."""

    def __init__(
        self, reads: SharedReads, sender: FrameSender, job: str, cursors: Cursors, timing: StreamTiming
    ) -> None:
        self._reads = reads
        self._sender = sender
        self._job = job
        self._after = cursors.after
        self._log = frames.LogDecoder(cursors.attempt or 0, cursors.offset)
        self._from_first = False
        self._points = frames.PointCursor()
        self._points_due = 0.0
        self._progress: ProgressView | None = None
        self._last_sent: object = None
        self._log_done = False
        self._verdict: str | None = None
        self._health_due = asyncio.get_running_loop().time() + timing.health
        self._give_up: float | None = None
        self._timing = timing

    async def run(self) -> None:
        hints: set[str] = set(ALL)
        async with self._reads.watch(self._job) as watch:
            while True:
                view = await self._round(hints)
                if view is not None and self._finished(view, hints):
                    health = await self._reads.health(self._job)
                    await self._sender.send([JobFrame(job=view.model_copy(update={"health": health}))])
                    return
                hints = await self._wait(watch, hints)

    async def _round(self, hints: set[str]) -> JobView | None:
        """Send what the hints name, and remove the hints that are done. Return the job if it was read.

        The job is read first: once it has ended, everything that is read after it is final.
        """
        read_job = "event" in hints or "progress" in hints or self._give_up is not None
        snapshot = await self._reads.view(self._job) if read_job else None
        ended = snapshot is not None and snapshot.view.ended
        if "event" in hints or ended:
            await self._events()
        if "log" in hints or ended:
            await self._logs(hints)
        if "points" in hints or ended:
            await self._send_points(hints, ended)
        hints -= {"event", "progress"}
        if snapshot is not None:
            await self._send_view(snapshot, ended)
        if not ended:
            await self._send_health()
        return None if snapshot is None else snapshot.view

    async def _wait(self, watch: Watch, left: set[str]) -> set[str]:
        """Return the next hints and those that are left; all hints after a while without any."""
        due = max(AT_ONCE, self._points_due - asyncio.get_running_loop().time())
        waits = {"log": AT_ONCE, "points": due, "end": self._timing.look_at_end}
        pending = left | {"end"} if self._give_up is not None else left
        wait = min((waits[hint] for hint in pending), default=self._timing.look)
        return {*await watch.changed(wait), *left} or set(ALL)

    async def _events(self) -> None:
        more = True
        while more:
            batch = await self._reads.events(self._job, self._after)
            await self._sender.send(batch.frames)
            self._after, more = batch.last, batch.more

    async def _logs(self, hints: set[str]) -> None:
        """Send some pages of output, not all: a program that writes without pause must not hold back its events."""
        hints.add("log")
        for _ in range(LOG_PAGES):
            page = await self._page()
            self._log_done = page.complete and page.attempt >= page.attempts
            await self._sender.send(self._log.frames(page.data, last=page.complete))
            if page.complete and page.attempt < page.attempts:
                self._log = frames.LogDecoder(page.attempt + 1, 0)
            elif not page.data:
                hints.discard("log")
                return

    async def _page(self) -> LogPage:
        page = await self._read()
        self._from_first = self._from_first or page.attempts == 0
        if page.attempt != self._log.attempt:
            # A client that connected before the first attempt gets all attempts; others begin with the newest.
            self._log = frames.LogDecoder(1 if self._from_first else page.attempt, self._log.offset)
            page = page if page.attempt == self._log.attempt else await self._read()
        if page.data and page.start > self._log.offset:
            self._log = frames.LogDecoder(page.attempt, page.start)
        return page

    async def _read(self) -> LogPage:
        attempt, offset = self._log.attempt or None, self._log.offset
        return await self._reads.logs(self._job, attempt=attempt, offset=offset, limit=LOG_PAGE)

    async def _send_points(self, hints: set[str], ended: bool) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._points_due and not ended:
            return
        self._points_due = now + self._timing.points
        hints.discard("points")
        names: list[str] = []
        for count in self._readings():
            metrics = await self._reads.metrics(self._job, series=names, points=count)
            await self._sender.send(self._points.frames(metrics, drawn=count > 0))
            names = self._points.lagging
            if not names:
                return

    def _readings(self) -> Iterable[int]:
        """Return the numbers of points to read, one after the other while series lag; negative: last points.

        At first enough to draw the series. Later about as many last points as came last time, more, and a new drawing.
        """
        if not self._points.begun:
            return (POINTS,)
        few = min(max(2 * self._points.grown, FEW), MANY)
        return dict.fromkeys((-few, -MANY, POINTS))

    async def _send_view(self, snapshot: JobSnapshot, ended: bool) -> None:
        view = snapshot.view
        if view.progress and view.progress != self._progress:
            self._progress = view.progress
            await self._sender.send([ProgressFrame(progress=view.progress)])
        state = (view.phase, view.desired, view.waiting, view.conditions, view.attempt)
        if state != self._last_sent and not ended:
            await self._sender.send([snapshot.frame])
        self._last_sent = state

    async def _send_health(self) -> None:
        """Send the health when its verdict has changed; the final one comes with the last frame."""
        now = asyncio.get_running_loop().time()
        if now < self._health_due:
            return
        self._health_due = now + self._timing.health
        health = await self._reads.health(self._job)
        if health.verdict != self._verdict:
            self._verdict = health.verdict
            await self._sender.send([HealthFrame(health=health)])

    def _finished(self, view: JobView, left: set[str]) -> bool:
        if not view.ended:
            return False
        now = asyncio.get_running_loop().time()
        if self._give_up is None or "log" in left:
            self._give_up = now + self._timing.settle
        return self._log_done or not view.attempts or now >= self._give_up
