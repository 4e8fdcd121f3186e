"""The sessions of one attempt: dialled when the server tells of them, each in a thread of its own, never many.

Nothing of a session may harm the job: whatever goes wrong in one ends that one.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Callable, Optional

from crucible.agent.link.channel import Called
from crucible.agent.link.connection import LinkError
from crucible.agent.process.launcher import CannotExecute
from crucible.agent.sessions.command import CommandPeer
from crucible.agent.sessions.forward import ConnectionPeer, NoConnection, ports_of
from crucible.agent.sessions.line import Line, LineLost
from crucible.agent.sessions.surroundings import Surroundings
from crucible.agent.sessions.talk import Peer, Talk
from crucible.wire.http import sessions as s

log = logging.getLogger(__name__)

MOST = 64
OPEN_SECONDS = 15.0
REMEMBERED = 1000
END_SECONDS = 10.0

NOT_RUNNING = s.Problem(
    "conflict", 409, "The job's program does not run.", "It has not begun, or has ended.", "See `crucible status`."
)
TOO_MANY = s.Problem(
    "too_many_tries", 429, "Too many sessions are open at this job.", f"{MOST} are the most.", "End one of them."
)


class Sessions:
    """`dial` opens the line of a session; `around` is what it finds, None while the program does not run."""

    def __init__(self, dial: Callable[[Called], Line], around: Callable[[], Optional[Surroundings]]) -> None:
        self._dial = dial
        self._around = around
        self._lock = threading.Lock()
        self._known: deque[str] = deque(maxlen=REMEMBERED)
        self._open = 0
        self._commands = 0
        self._changed = threading.Condition()
        self._closed = False

    def told(self, calls: Sequence[Called]) -> None:
        """Somebody waits in these; those that are known already are passed over."""
        for called in calls:
            if called.id not in self._known:
                self._known.append(called.id)
                threading.Thread(target=self._serve, args=(called,), name="session", daemon=True).start()

    def _serve(self, called: Called) -> None:
        with self._lock:
            self._open += 1
        try:
            line = self._dial(called)
            try:
                self._hold(called.id, line)
            finally:
                line.close()
        except (LinkError, LineLost) as error:
            log.info("session %s: %s", called.id, error)
        except Exception:  # a thread that fails ends the runner, and a session is not worth the job
            log.exception("session %s failed", called.id)
        finally:
            with self._lock:
                self._open -= 1

    def _hold(self, id: str, line: Line) -> None:
        try:
            self._answer(id, line)
        except s.BadFrame as error:
            what = "The session was ended: its frames are not right."
            line.send(
                s.over(s.Over(problem=s.Problem("bad_input", 422, what, f"{error}.", "See docs/attach.md, Frames.")))
            )
        except NoConnection as error:
            line.send(s.over(s.Over(problem=error.problem)))
        except CannotExecute as error:
            line.send(s.data(f"crucible: {error.text}\n".encode("utf-8", "replace"), s.Kind.ERROR_DATA))
            line.send(s.over(s.Over(code=error.code)))
        except OSError as error:
            what = "The session could not be started on the machine."
            fix = "Its folder may have gone, or its memory, processes or files may be used up: see `crucible metrics`."
            line.send(s.over(s.Over(problem=s.Problem("trouble", 503, what, f"{error}.", fix))))

    def _answer(self, id: str, line: Line) -> None:
        frame = line.wait_for_frame(OPEN_SECONDS)
        s.kind_of(frame, frozenset({s.Kind.OPEN}))
        wanted, around = s.read_opening(frame), self._around()
        problem = NOT_RUNNING if around is None or self._closed else TOO_MANY if self._open > MOST else None
        if problem is not None or around is None:
            line.send(s.over(s.Over(problem=problem)))
        elif isinstance(wanted, s.Ports):
            line.send(s.over(s.Over(code=0, ports=tuple(sorted(ports_of(around))))))
        elif isinstance(wanted, s.Connection):
            _talk(line, ConnectionPeer(wanted.port, around), tells_end=True)
        else:
            self._command(id, line, wanted, around)

    def _command(self, id: str, line: Line, wanted: s.Command, around: Surroundings) -> None:
        with self._counted():
            peer = CommandPeer(id, wanted, around)
            # Whoever ends the job ends all that is there then: what came too late for that ends here.
            if self._closed or not around.alive():
                peer.end_now()
                line.send(s.over(s.Over(problem=NOT_RUNNING)))
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
        """No more begin; returns once no command is left. The job has ended, and what ran there was killed with it."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._commands, seconds)


def _talk(line: Line, peer: Peer, secrets: tuple[str, ...] = (), *, tells_end: bool = False) -> None:
    try:
        Talk(line, peer, secrets, tells_end=tells_end).run()
    finally:
        peer.leave()
