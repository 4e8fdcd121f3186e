"""The users' end of sessions, at the real agents' listener, and a record of each session."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tests.agent.agents_server import AgentsServer
from tests.agent.waiting import poll
from tests.control.harness import job_spec

from crucible.agent.link.channel import DesiredAttempt, HttpChannel, SessionRequest
from crucible.agent.link.connection import ServerAddress
from crucible.agent.sessions import JobContext, SessionManager
from crucible.agent.sessions.session_socket import SessionSocket, open_session_socket
from crucible.control.agents.sessions import AgentSession, SessionStream, SessionTarget
from crucible.core.people.identity import OWNER
from crucible.server.streams.relay import ConnectionLost
from crucible.wire.http import sessions as s

T = TypeVar("T")

SECONDS = 20.0


def new_session() -> str:
    """Return the id of a session; whatever carries it ends with the session, among the processes of other tests too."""
    return f"ses-{uuid.uuid4().hex}"


@dataclass
class Seen:
    """Everything that arrived from a session up to its end."""

    stdout: bytes = b""
    stderr: bytes = b""
    ended: bool = False
    credit: int = 0
    over: s.Over = field(default_factory=s.Over)


class Caller:
    """The user's end of a session. It sends frames directly to the agent, even those that the relay would refuse."""

    def __init__(self, control: AgentsServer, hold: Callable[[Caller], Awaitable[None]]) -> None:
        self._control = control
        self._agent: asyncio.Future[SessionStream] = control.call(_new_future)
        self._left: asyncio.Event = control.call(_new_event)
        self._holding = control.begin(hold, self)
        self.seen = Seen()

    async def hold(self, session: AgentSession) -> None:
        """Wait until the test ends the session."""
        self._agent.set_result(await session.wait_for_agent())
        await self._left.wait()

    def send(self, *frames: bytes) -> None:
        for frame in frames:
            self._control.call(self._on_agent, lambda agent, frame=frame: agent.send(frame))

    def frame(self) -> bytes:
        frame = self._control.call(self._on_agent, lambda agent: agent.receive())
        assert isinstance(frame, bytes)
        return frame

    async def agent(self) -> SessionStream:
        """Wait for the agent's socket."""
        return await asyncio.shield(self._agent)

    async def _on_agent(self, act: Callable[[SessionStream], Awaitable[T]]) -> T:
        return await act(await self.agent())

    def take(self) -> s.FrameKind:
        """Return the next frame, and record it. Credit is granted at once."""
        frame = self.frame()
        kind = s.frame_kind(frame, s.FROM_AGENT)
        if kind is s.FrameKind.DATA:
            self.seen.stdout += frame[1:]
        elif kind is s.FrameKind.ERROR_DATA:
            self.seen.stderr += frame[1:]
        elif kind is s.FrameKind.END:
            self.seen.ended = True
        elif kind is s.FrameKind.CREDIT:
            self.seen.credit += s.read_credit(frame)
        elif kind is s.FrameKind.OVER:
            self.seen.over = s.read_over(frame)
        if kind in (s.FrameKind.DATA, s.FrameKind.ERROR_DATA):
            with contextlib.suppress(ConnectionLost):  # the agent has told its last
                self.send(s.credit_frame(len(frame) - 1))
        return kind

    def ready(self) -> Caller:
        assert self.take() is s.FrameKind.READY, self.seen
        return self

    def until(self, text: bytes) -> bytes:
        while text not in self.seen.stdout:
            assert self.take() is not s.FrameKind.OVER, self.seen
        return self.seen.stdout

    def to_the_end(self) -> Seen:
        while self.take() is not s.FrameKind.OVER:
            pass
        return self.seen

    def leave(self) -> None:
        self._control.call(self._leave)
        self._holding.result(SECONDS)

    async def _leave(self) -> None:
        self._left.set()


class Callers:
    """Users who open sessions of an attempt. Its agent gets the requests from the agents' listener."""

    def __init__(self, control: AgentsServer) -> None:
        self._control = control
        self._attempt = control.run(job_spec(), f"attempt-{uuid.uuid4().hex}")
        self._channel = HttpChannel(self._address, self._attempt.id, 0, self._secret)
        self._open: list[Caller] = []
        self.sessions: list[str] = []
        """The ids of opened sessions."""

    @property
    def _address(self) -> ServerAddress:
        return ServerAddress(file=self._control.url_file)

    @property
    def _secret(self) -> str:
        return self._control.secret(self._attempt.id)

    @property
    def dialled(self) -> list[str]:
        """The sessions that the agent connected to, in order."""
        return [path.rpartition("/")[2] for _, path in self._control.requests if "/sessions/" in path]

    def dial(self, request: SessionRequest) -> SessionSocket:
        path = f"/agent/v1/attempts/{self._attempt.id}/0/sessions/{request.id}"
        return open_session_socket(self._address, path, self._secret)

    def call(self, sessions: SessionManager) -> Caller:
        """Open another session, and let the agent know."""
        self.sessions.append(id := new_session())
        target = SessionTarget(OWNER.user, self._attempt.job, self._attempt.id, self._control.machine)

        async def hold(caller: Caller) -> None:
            with self._control.harness.services.sessions.open(id, target) as opened:
                await caller.hold(opened)

        caller = Caller(self._control, hold)
        self._open.append(caller)
        desired = self._channel.desired(DesiredAttempt(), SECONDS)
        assert desired is not None
        sessions.start_sessions(desired.sessions)
        self._control.call(caller.agent)
        return caller

    def open(self, around: JobContext | None, opening: s.Opening) -> Caller:
        caller = self.call(SessionManager(self.dial, lambda: around))
        caller.send(s.open_frame(opening))
        return caller

    def close(self) -> None:
        self._channel.close()
        for caller in self._open:
            caller.leave()
        poll(lambda: not any(thread.name.startswith("session") for thread in threading.enumerate()))


async def _new_future() -> asyncio.Future[SessionStream]:
    return asyncio.get_running_loop().create_future()


async def _new_event() -> asyncio.Event:
    return asyncio.Event()


def around(folder: Path, env: Mapping[str, str] | None = None, **more: object) -> JobContext:
    """Return the context of a job that runs, whose processes are this one's children.

    Its attempt is its own: what ends with one is looked for by that name, among the processes of other tests too.
    """
    found = {
        "folder": folder,
        "env": {"PATH": os.environ["PATH"], "CRUCIBLE_ATTEMPT_ID": f"att-{uuid.uuid4().hex}", **(env or {})},
        "secrets": (),
        "admit": lambda pid: None,
        "pids": list,
        "alive": lambda: True,
    }
    return JobContext(**{**found, **more})  # type: ignore[arg-type]
