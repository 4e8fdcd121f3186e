"""The sessions of one attempt: opened when the server requests them, each in a thread of its own.

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
    "conflict", 409, "The job's program does not run.", "It has not begun, or has ended.", "See `crucible status`."
)
TOO_MANY = s.Problem(
    "too_many_tries", 429, "Too many sessions are open at this job.", f"{MAX_OPEN} are the most.", "End one of them."
)


class SessionManager:
    """`open_socket` connects to the server; `job` returns the running job, or None while it does not run."""

    def __init__(
        self, dial: Callable[[SessionRequest], SessionSocket], around: Callable[[], Optional[JobContext]]
    ) -> None:
        self._dial = dial
        self._around = around
        self._lock = threading.Lock()
        self._known: deque[str] = deque(maxlen=REMEMBERED)
        self._open = 0
        self._commands = 0
        self._changed = threading.Condition()
        self._closed = False

    def start_sessions(self, calls: Sequence[SessionRequest]) -> None:
        """Start the requested sessions, except those that were started before."""
        for called in calls:
            if called.id not in self._known:
                self._known.append(called.id)
                threading.Thread(target=self._serve, args=(called,), name="session", daemon=True).start()

    def _serve(self, called: SessionRequest) -> None:
        with self._lock:
            self._open += 1
        try:
            line = self._dial(called)
            try:
                self._hold(called.id, line)
            finally:
                line.close()
        except (ChannelError, SocketLost) as error:
            log.info("session %s: %s", called.id, error)
        except Exception:  # a failing thread ends the runner (see attempt.py), and with it the job
            log.exception("session %s failed", called.id)
        finally:
            with self._lock:
                self._open -= 1

    def _hold(self, id: str, line: SessionSocket) -> None:
        try:
            self._answer(id, line)
        except s.BadFrame as error:
            what = "The session was ended: it sent an invalid frame."
            line.send(
                s.over_frame(
                    s.Over(problem=s.Problem("bad_input", 422, what, f"{error}.", "See docs/attach.md, Frames."))
                )
            )
        except NoConnection as error:
            line.send(s.over_frame(s.Over(problem=error.problem)))
        except CannotExecute as error:
            line.send(s.data_frame(f"crucible: {error.text}\n".encode("utf-8", "replace"), s.FrameKind.ERROR_DATA))
            line.send(s.over_frame(s.Over(code=error.code)))
        except OSError as error:
            what = "The session could not be started on the machine."
            fix = "Its folder may have gone, or its memory, processes or files may be used up: see `crucible metrics`."
            line.send(s.over_frame(s.Over(problem=s.Problem("trouble", 503, what, f"{error}.", fix))))

    def _answer(self, id: str, line: SessionSocket) -> None:
        frame = line.wait_for_frame(OPEN_SECONDS)
        s.frame_kind(frame, frozenset({s.FrameKind.OPEN}))
        wanted, around = s.read_opening(frame), self._around()
        problem = NOT_RUNNING if around is None or self._closed else TOO_MANY if self._open > MAX_OPEN else None
        if problem is not None or around is None:
            line.send(s.over_frame(s.Over(problem=problem)))
        elif isinstance(wanted, s.Ports):
            line.send(s.over_frame(s.Over(code=0, ports=tuple(sorted(listening_ports(around))))))
        elif isinstance(wanted, s.Connection):
            _talk(line, PortEndpoint(wanted.port, around), tells_end=True)
        else:
            self._command(id, line, wanted, around)

    def _command(self, id: str, line: SessionSocket, wanted: s.Command, around: JobContext) -> None:
        with self._counted():
            peer = CommandEndpoint(id, wanted, around)
            # The job may have ended while the command was started: too late to be killed with it, so it ends here.
            if self._closed or not around.alive():
                peer.end_now()
                line.send(s.over_frame(s.Over(problem=NOT_RUNNING)))
            else:
                _talk(line, peer, around.secrets)

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


def _talk(
    line: SessionSocket, peer: SessionEndpoint, secrets: tuple[str, ...] = (), *, tells_end: bool = False
) -> None:
    try:
        SessionRelay(line, peer, secrets, tells_end=tells_end).run()
    finally:
        peer.leave()
