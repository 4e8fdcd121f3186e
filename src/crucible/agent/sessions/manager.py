"""The sessions of one attempt. Each is opened when the server requests it, and has its own thread.

A session must not harm the job: an error in one ends that session only.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Callable, Optional

from crucible.agent.link.channel import SessionRequest
from crucible.agent.link.connection import ChannelError
from crucible.agent.process.launcher import CannotExecute
from crucible.agent.sessions.command import CommandEndpoint
from crucible.agent.sessions.endpoint import JobContext, SessionEndpoint
from crucible.agent.sessions.forward import NoConnection, PortEndpoint, listening_ports
from crucible.agent.sessions.relay import SessionRelay
from crucible.agent.sessions.session_socket import SessionSocket, SocketLost
from crucible.wire.http import sessions as s

log = logging.getLogger(__name__)

MAX_OPEN = 64
OPEN_SECONDS = 15.0
REMEMBERED = 1000
END_SECONDS = 10.0

NOT_RUNNING = s.Problem(
    "conflict",
    409,
    "The job's program is not running.",
    "It has not started yet, or has ended.",
    "See `crucible status`.",
)
TOO_MANY = s.Problem(
    "too_many_tries", 429, "Too many sessions are open at this job.", f"The limit is {MAX_OPEN}.", "End one of them."
)


class SessionManager:
    """`open_socket` connects to the server; `job` returns the running job, or None while it does not run."""

    def __init__(
        self, open_socket: Callable[[SessionRequest], SessionSocket], job: Callable[[], Optional[JobContext]]
    ) -> None:
        self._open_socket = open_socket
        self._running_job = job
        self._lock = threading.Lock()
        self._known: deque[str] = deque(maxlen=REMEMBERED)
        self._open = 0
        self._commands = 0
        self._changed = threading.Condition()
        self._closed = False

    def start_sessions(self, requests: Sequence[SessionRequest]) -> None:
        """Start the requested sessions, except those that were started before."""
        for request in requests:
            if request.id not in self._known:
                self._known.append(request.id)
                threading.Thread(target=self._serve, args=(request,), name="session", daemon=True).start()

    def _serve(self, request: SessionRequest) -> None:
        with self._lock:
            self._open += 1
        try:
            socket = self._open_socket(request)
            try:
                self._run_session(request.id, socket)
            finally:
                socket.close()
        except (ChannelError, SocketLost) as error:
            log.info("session %s: %s", request.id, error)
        except Exception:  # a failing thread ends the runner (see attempt.py), and with it the job
            log.exception("session %s failed", request.id)
        finally:
            with self._lock:
                self._open -= 1

    def _run_session(self, id: str, socket: SessionSocket) -> None:
        try:
            self._answer(id, socket)
        except s.BadFrame as error:
            what = "The session was ended: it sent an invalid frame."
            socket.send(
                s.over_frame(
                    s.Over(problem=s.Problem("bad_input", 422, what, f"{error}.", "See docs/attach.md, Frames."))
                )
            )
        except NoConnection as error:
            socket.send(s.over_frame(s.Over(problem=error.problem)))
        except CannotExecute as error:
            socket.send(s.data_frame(f"crucible: {error.text}\n".encode("utf-8", "replace"), s.FrameKind.ERROR_DATA))
            socket.send(s.over_frame(s.Over(code=error.code)))
        except OSError as error:
            what = "The session could not be started on the machine."
            fix = "Its folder may be gone, or its memory, processes or files may be used up: see `crucible metrics`."
            socket.send(s.over_frame(s.Over(problem=s.Problem("trouble", 503, what, f"{error}.", fix))))

    def _answer(self, id: str, socket: SessionSocket) -> None:
        frame = socket.wait_for_frame(OPEN_SECONDS)
        s.frame_kind(frame, frozenset({s.FrameKind.OPEN}))
        opening, job = s.read_opening(frame), self._running_job()
        problem = NOT_RUNNING if job is None or self._closed else TOO_MANY if self._open > MAX_OPEN else None
        if problem is not None or job is None:
            socket.send(s.over_frame(s.Over(problem=problem)))
        elif isinstance(opening, s.Ports):
            socket.send(s.over_frame(s.Over(code=0, ports=tuple(sorted(listening_ports(job))))))
        elif isinstance(opening, s.Connection):
            _relay(socket, PortEndpoint(opening.port, job), sends_end=True)
        else:
            self._command(id, socket, opening, job)

    def _command(self, id: str, socket: SessionSocket, opening: s.Command, job: JobContext) -> None:
        with self._counted():
            peer = CommandEndpoint(id, opening, job)
            # The job may have ended while the command was started, too late to kill it with the job: end it here.
            if self._closed or not job.alive():
                peer.end_now()
                socket.send(s.over_frame(s.Over(problem=NOT_RUNNING)))
            else:
                _relay(socket, peer, job.secrets)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._changed:
            self._commands += 1
        try:
            yield
        finally:
            with self._changed:
                self._commands -= 1
                self._changed.notify_all()

    def end(self, seconds: float = END_SECONDS) -> None:
        """Refuse new sessions and wait until no command is left. Call it when the job has ended."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._commands, seconds)


def _relay(
    socket: SessionSocket, peer: SessionEndpoint, secrets: tuple[str, ...] = (), *, sends_end: bool = False
) -> None:
    try:
        SessionRelay(socket, peer, secrets, sends_end=sends_end).run()
    finally:
        peer.leave()
