"""Sessions between a user and the agent of a job, kept in the memory of one process.

The agent learns of a session when it next polls, and dials back; a session that is not dialled in time is given up.
Of several processes that share a database, the one that the agent polls tells it the address of the one that waits.
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

DIAL_SECONDS = 10.0
TOPIC = "session"
MOST_OF_JOB, MOST_OF_USER, MOST = 48, 96, 240
"""Sessions at once: of one job, of one user, of this process."""
MAX_REMOTE_CALLS = 1000


class SessionStream(Protocol):
    """Frames to and from one end of a session."""

    async def send(self, frame: bytes) -> None: ...

    async def receive(self) -> bytes | None:
        """Return the next frame; None once the other end has gone."""


@dataclass(frozen=True)
class SessionTarget:
    """The user of a session, and where its job runs."""

    user: str
    job: str
    attempt: str
    machine: str


@dataclass(eq=False)
class AgentSession:
    """One session, from its call to its end."""

    id: str
    target: SessionTarget
    agent_stream: asyncio.Future[SessionStream] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_for_agent(self) -> SessionStream:
        """Return the agent's stream once it has dialled. Raises TimedOut, Unreachable."""
        try:
            return await asyncio.wait_for(asyncio.shield(self.agent_stream), DIAL_SECONDS)
        except asyncio.CancelledError:
            if not self.agent_stream.cancelled():
                raise
            raise Unreachable(
                "The job's machine opened the connection for the session and closed it.", fix="Try again."
            ) from None
        except TimeoutError:
            raise TimedOut(
                "The job's machine did not open a connection for the session.",
                why="Its agent is unreachable, or talks to another process of the server.",
                fix="Check the job with `crucible status`, then try again.",
            ) from None


class Sessions:
    """`agents_url` is where agents find this process."""

    def __init__(self, ports: Ports, agents_url: str) -> None:
        self._ports = ports
        self._agents_url = agents_url
        self._open: dict[str, AgentSession] = {}
        self._reserved: list[SessionTarget] = []
        self._remote_calls: dict[str, tuple[str, str, float]] = {}
        ports.wakeups.subscribe_remote(f"{TOPIC}:", self._on_remote_call)

    @contextmanager
    def reserve(self, visit: SessionTarget) -> Iterator[None]:
        """Count a session whose job's program has not begun; the agent is not called yet. Raises TooManyAttempts."""
        self._check_limits(visit)
        self._reserved.append(visit)
        try:
            yield
        finally:
            self._reserved.remove(visit)

    @contextmanager
    def open(self, id: str, visit: SessionTarget) -> Iterator[AgentSession]:
        """Open a session and call the agent to it, until the context ends. Raises TooManyAttempts."""
        self._check_limits(visit)
        meeting = self._open[id] = AgentSession(id, visit)
        wake = self._ports.wakeups.wake
        wake(f"{TOPIC}:{visit.attempt}:{id}:{visit.machine}:{self._agents_url}")
        wake(f"machine:{visit.machine}")
        try:
            yield meeting
        finally:
            del self._open[id]
            meeting.closed.set()
            meeting.agent_stream.cancel()

    def pending_calls(self, attempt: str) -> list[SessionCallView]:
        """Return the sessions that the attempt's agent has not dialled yet."""
        now = self._ports.clock.now()
        waiting = [m for m in self._open.values() if m.target.attempt == attempt and not m.agent_stream.done()]
        others = [(id, url) for id, (of, url, until) in self._remote_calls.items() if of == attempt and until > now]
        found: list[tuple[str, str | None]] = [*((m.id, None) for m in waiting), *others]
        return [SessionCallView(id=id, at=url) for id, url in found]

    @contextmanager
    def accept(self, attempt: str, id: str) -> Iterator[AgentSession]:
        """Return the session that an agent dialled. Raises NotFound if it is not its own or already dialled."""
        meeting = self._open.get(id)
        if meeting is None or meeting.target.attempt != attempt or meeting.agent_stream.done():
            raise NotFound("There is no such session of this attempt.", fix="The agent ignores it.")
        try:
            yield meeting
        finally:
            meeting.agent_stream.cancel()

    def _check_limits(self, visit: SessionTarget) -> None:
        there = [*self._reserved, *(meeting.target for meeting in self._open.values())]
        users = Counter(one.user for one in there)
        jobs = Counter(one.job for one in there)
        for count, most, where in (
            (jobs[visit.job], MOST_OF_JOB, "on this job"),
            (users[visit.user], MOST_OF_USER, "of yours"),
            (len(there), MOST, "on this server"),
        ):
            if count >= most:
                raise TooManyAttempts(
                    f"Too many sessions are open {where}.",
                    why=f"{most} at once are the most; each connection to a forwarded port is one.",
                    fix="End one of them, then try again.",
                    retry_after=1,
                )

    def _on_remote_call(self, topic: str | None) -> None:
        """Note that another process calls the agent. If the wake-up was lost, that process gives the session up."""
        if topic is None:
            return
        _, attempt, id, machine, url = topic.split(":", 4)
        now = self._ports.clock.now()
        self._remote_calls = {key: value for key, value in self._remote_calls.items() if value[2] > now}
        if len(self._remote_calls) < MAX_REMOTE_CALLS:
            self._remote_calls[id] = (attempt, url, now + DIAL_SECONDS)
            self._ports.wakeups.wake(f"machine:{machine}")
