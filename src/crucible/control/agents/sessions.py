"""Sessions: where whoever asked for one and the agent of the job meet. All of it is in the memory of one process.

The agent is told when it next asks what is wanted, which it always does, and dials; what it does not dial in time is
given up. Where several processes share a database, each tells the others: the one that the agent asks passes on at
which address the agent finds the one that waits.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from crucible.control.runtime.ports import Ports
from crucible.core.errors import NotFound, TimedOut, TooManyAttempts, Unreachable
from crucible.core.views.agents import SessionCallView

MEET_SECONDS = 10.0
TOPIC = "session"
MOST_OF_JOB, MOST_OF_USER, MOST = 48, 96, 240
"""Sessions at once: of one job, of one user, of this process."""
MOST_ELSEWHERE = 1000


class Line(Protocol):
    """Frames to and from somebody."""

    async def send(self, frame: bytes) -> None: ...

    async def receive(self) -> bytes | None:
        """None once he has gone."""


@dataclass(frozen=True)
class Visit:
    """Whom a session is for, and where its job runs."""

    user: str
    job: str
    attempt: str
    machine: str


@dataclass(eq=False)
class Meeting:
    """One session, from its call to its end."""

    id: str
    visit: Visit
    came: asyncio.Future[Line] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def agent(self) -> Line:
        """The agent's line, once it has dialled; raises TimedOut."""
        try:
            return await asyncio.wait_for(asyncio.shield(self.came), MEET_SECONDS)
        except asyncio.CancelledError:
            if not self.came.cancelled():
                raise
            raise Unreachable(
                "The job's machine opened the line for the session and let it go.", fix="Try again."
            ) from None
        except TimeoutError:
            raise TimedOut(
                "The job's machine did not open the line for the session.",
                why="Its agent is out of contact, or talks to another process of the server.",
                fix="See how it does with `crucible status`; then try again.",
            ) from None


class Sessions:
    """`agents_url` is where agents find this process."""

    def __init__(self, ports: Ports, agents_url: str) -> None:
        self._ports = ports
        self._agents_url = agents_url
        self._open: dict[str, Meeting] = {}
        self._early: list[Visit] = []
        self._elsewhere: dict[str, tuple[str, str, float]] = {}
        ports.wakeups.overhear(f"{TOPIC}:", self._overheard)

    @contextmanager
    def early(self, visit: Visit) -> Iterator[None]:
        """Room for a session whose job's program has not begun; the agent is not called. Raises TooManyAttempts."""
        self._need_room(visit)
        self._early.append(visit)
        try:
            yield
        finally:
            self._early.remove(visit)

    @contextmanager
    def held(self, id: str, visit: Visit) -> Iterator[Meeting]:
        """A session that the agent is called to, until this ends. Raises TooManyAttempts."""
        self._need_room(visit)
        meeting = self._open[id] = Meeting(id, visit)
        wake = self._ports.wakeups.wake
        wake(f"{TOPIC}:{visit.attempt}:{id}:{visit.machine}:{self._agents_url}")
        wake(f"machine:{visit.machine}")
        try:
            yield meeting
        finally:
            del self._open[id]
            meeting.over.set()
            meeting.came.cancel()

    def called(self, attempt: str) -> list[SessionCallView]:
        """The sessions whose agent has not come yet."""
        now = self._ports.clock.now()
        waiting = [m for m in self._open.values() if m.visit.attempt == attempt and not m.came.done()]
        others = [(id, url) for id, (of, url, until) in self._elsewhere.items() if of == attempt and until > now]
        found: list[tuple[str, str | None]] = [*((m.id, None) for m in waiting), *others]
        return [SessionCallView(id=id, at=url) for id, url in found]

    @contextmanager
    def met(self, attempt: str, id: str) -> Iterator[Meeting]:
        """The session that an agent dialled, if it is its own and nobody has come; raises NotFound."""
        meeting = self._open.get(id)
        if meeting is None or meeting.visit.attempt != attempt or meeting.came.done():
            raise NotFound("There is no such session of this attempt.", fix="The agent lets it be.")
        try:
            yield meeting
        finally:
            meeting.came.cancel()

    def _need_room(self, visit: Visit) -> None:
        there = [*self._early, *(meeting.visit for meeting in self._open.values())]
        users = Counter(one.user for one in there)
        jobs = Counter(one.job for one in there)
        for count, most, where in (
            (jobs[visit.job], MOST_OF_JOB, "at this job"),
            (users[visit.user], MOST_OF_USER, "of yours"),
            (len(there), MOST, "at this server"),
        ):
            if count >= most:
                raise TooManyAttempts(
                    f"Too many sessions are open {where}.",
                    why=f"{most} at once are the most; each connection to a forwarded port is one.",
                    fix="End one of them, then try again.",
                    retry_after=1,
                )

    def _overheard(self, topic: str | None) -> None:
        """Another process has called the agent; one that was missed is given up there."""
        if topic is None:
            return
        _, attempt, id, machine, url = topic.split(":", 4)
        now = self._ports.clock.now()
        self._elsewhere = {key: value for key, value in self._elsewhere.items() if value[2] > now}
        if len(self._elsewhere) < MOST_ELSEWHERE:
            self._elsewhere[id] = (attempt, url, now + MEET_SECONDS)
            self._ports.wakeups.wake(f"machine:{machine}")
