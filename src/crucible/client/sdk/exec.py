"""Runs a command where a job's program runs, and returns its exit code and output."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from crucible.client.request.checks import invalid_value
from crucible.client.transport.http import Transport
from crucible.client.transport.sessions import Session, SessionOver, make_command, open_session
from crucible.core.errors import CrucibleError, TimedOut
from crucible.wire.http.sessions import FrameKind


@dataclass(frozen=True)
class ExecResult:
    """`code` is the exit code, or 128 plus the signal's number. `job_ended`: the command ended because its job did."""

    code: int
    stdout: bytes
    stderr: bytes
    job_ended: bool = False

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def text(self) -> str:
        """The standard output as text, with invalid UTF-8 replaced."""
        return self.stdout.decode("utf-8", errors="replace")

    def as_json(self) -> dict[str, object]:
        stderr = self.stderr.decode("utf-8", errors="replace")
        return {"code": self.code, "stdout": self.text, "stderr": stderr, "job_ended": self.job_ended}


def execute(
    transport: Transport, ref: str, command: Sequence[str], *, input: bytes = b"", timeout: float | None = None
) -> ExecResult:
    """Run the command to its end. Raises TimedOut after `timeout` seconds, and ends the command."""
    if isinstance(command, str) or not command or not all(isinstance(word, str) for word in command):
        raise invalid_value("command", command, "must be a list of texts, such as ['ls', '-l']")
    with open_session(transport, ref, make_command(tuple(command))) as session:
        return _run(session, input, timeout)


def _run(session: Session, input: bytes, timeout: float | None) -> ExecResult:
    late = threading.Event()

    def give_up() -> None:
        late.set()
        session.close()

    timer = threading.Timer(timeout or 0, give_up)
    timer.daemon = True
    if timeout is not None:
        timer.start()
    threading.Thread(target=_feed, args=(session, input), name="crucible-input", daemon=True).start()
    written: dict[FrameKind, list[bytes]] = {FrameKind.DATA: [], FrameKind.ERROR_DATA: []}
    try:
        for kind, content in session.frames():
            if kind in written:
                written[kind].append(content)
    except CrucibleError:
        if late.is_set():
            raise TimedOut(
                f"The command took longer than {timeout:g} seconds.", why="It was ended.", fix="Raise timeout."
            ) from None
        raise
    finally:
        timer.cancel()
    assert session.over is not None
    code, ended = session.over.exit_code, session.over.job_ended
    return ExecResult(code, b"".join(written[FrameKind.DATA]), b"".join(written[FrameKind.ERROR_DATA]), ended)


def _feed(session: Session, input: bytes) -> None:
    with contextlib.suppress(SessionOver):
        session.write(input)
        session.end_input()
