"""The far end of sessions: a real WebSocket server where the client stands, and what it saw."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from crucible.agent.link.channel import SessionRequest
from crucible.agent.link.connection import ServerAddress
from crucible.agent.sessions import JobContext, SessionManager
from crucible.agent.sessions.session_socket import SessionSocket, open_session_socket
from crucible.wire.http import sessions as s

SECONDS = 20.0
# Whatever carries a session's id ends with it, also among the processes of a test run beside this one.
_RUN = uuid.uuid4().hex


def session(number: int = 1) -> str:
    """The id of a session."""
    return f"ses-{number}-{_RUN}"


@dataclass
class Seen:
    """All that came of a session up to its end."""

    stdout: bytes = b""
    stderr: bytes = b""
    ended: bool = False
    credit: int = 0
    over: s.Over = field(default_factory=s.Over)


class Caller:
    """Whoever asked for the session, with the agent at the other end of his socket."""

    def __init__(self, socket: ServerConnection, gone: threading.Event) -> None:
        self._socket = socket
        self._gone = gone
        self.seen = Seen()

    def send(self, *frames: bytes) -> None:
        for frame in frames:
            self._socket.send(frame)

    def frame(self) -> bytes:
        frame = self._socket.recv(timeout=SECONDS)
        assert isinstance(frame, bytes)
        return frame

    def take(self) -> s.FrameKind:
        """The next frame, added to what was seen. Credit is given at once."""
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
            with contextlib.suppress(ConnectionClosed):  # the agent has told its last
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
        self._gone.set()


class FarEnd:
    """Calls an agent's sessions, which dial here."""

    def __init__(self) -> None:
        self._sockets: queue.Queue[tuple[ServerConnection, threading.Event]] = queue.Queue()
        self._server: Server = serve(self._came, "127.0.0.1", 0, max_size=s.MAX_FRAME, close_timeout=1)
        self.paths: list[str] = []
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> FarEnd:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()

    @property
    def url(self) -> str:
        host, port = self._server.socket.getsockname()[:2]
        return f"http://{host}:{port}"

    def dial(self, called: SessionRequest) -> SessionSocket:
        return open_session_socket(ServerAddress(self.url), f"/sessions/{called.id}", "secret")

    def call(self, sessions: SessionManager, number: int = 1) -> Caller:
        sessions.start_sessions([SessionRequest(session(number))])
        return Caller(*self._sockets.get(timeout=SECONDS))

    def open(self, around: JobContext | None, wanted: s.Opening) -> Caller:
        caller = self.call(SessionManager(self.dial, lambda: around))
        caller.send(s.open_frame(wanted))
        return caller

    def _came(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        self.paths.append(socket.request.path)
        gone = threading.Event()
        self._sockets.put((socket, gone))
        while not gone.wait(0.01) and socket.state.name == "OPEN":
            pass


def around(folder: Path, env: Mapping[str, str] | None = None, **more: object) -> JobContext:
    """Surroundings of a job that runs, whose processes are this one's children.

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
