"""Sessions at running jobs: frames over a WebSocket, with flow control (see `crucible.wire.http.sessions`)."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.sync.client import ClientConnection, connect

from crucible.client.api import routes
from crucible.client.api.resource import path_of
from crucible.client.transport.address import is_loopback
from crucible.client.transport.http import Endpoint, Transport, auth_headers, unreachable
from crucible.client.transport.problems import error_from
from crucible.core.errors import BadInput, CrucibleError, Unreachable
from crucible.wire.http import sessions as s

OPEN_SECONDS = 15.0
CREDIT_BYTES = s.WINDOW // 4


class SessionOver(Exception):
    """The session has ended; nothing can be sent any more."""


class Session(AbstractContextManager["Session"]):
    """An open session. One thread reads `frames`, another may write."""

    def __init__(self, connection: ClientConnection, resources: ExitStack) -> None:
        self._connection = connection
        self._resources = resources
        self._window = s.CreditWindow()
        self._writable = threading.Condition()
        self._ended = False
        self._consumed = 0
        self.over: s.Over | None = None
        """How the session ended; set after the last of `frames`."""

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session at once; the command that runs for it is ended."""
        self._end()
        with contextlib.suppress(OSError):
            self._resources.close()

    def frames(self) -> Iterator[tuple[s.FrameKind, bytes]]:
        """Yield READY, data and end frames until the session has ended; `over` then says how.

        Data counts as consumed when the next frame is requested. Raises the error that the server or the agent sent.
        """
        try:
            while self.over is None:
                frame = self._receive()
                kind = s.frame_kind(frame, s.FROM_AGENT)
                if kind is s.FrameKind.CREDIT:
                    self._add_credit(s.read_credit(frame))
                elif kind is s.FrameKind.OVER:
                    self.over = s.read_over(frame)
                else:
                    yield kind, frame[1:]
                    self._return_credit(len(frame) - 1)
        except s.BadFrame as error:
            raise Unreachable(
                "The server sent an invalid frame.",
                why=f"{error}.",
                fix="Use the same version on this computer, the server and the job's agent: crucible --version",
            ) from error
        finally:
            self._end()
        if self.over.problem is not None:
            raise problem_of(self.over.problem)

    def write(self, data: bytes) -> None:
        """Send input, waiting while the other side has no room for it. Raises SessionOver."""
        for at in range(0, len(data), s.CHUNK):
            part = data[at : at + s.CHUNK]
            with self._writable:
                self._writable.wait_for(lambda: self._ended or self._window.room >= s.CHUNK)
                self._window.spend(len(part))
            self._send(s.data_frame(part))

    def end_input(self) -> None:
        self._send(s.end_frame())

    def resize(self, size: s.Size) -> None:
        self._send(s.resize_frame(size))

    def _send(self, frame: bytes) -> None:
        if self._ended:
            raise SessionOver
        try:
            self._connection.send(frame)
        except (ConnectionClosed, OSError) as error:
            raise SessionOver from error

    def _receive(self) -> bytes:
        try:
            frame = self._connection.recv()
        except (ConnectionClosed, OSError) as error:
            raise Unreachable(
                "The session was disconnected.",
                why="The server or the connection to it was lost.",
                fix="The job goes on; try again.",
            ) from error
        return frame if isinstance(frame, bytes) else frame.encode()

    def _return_credit(self, count: int) -> None:
        self._consumed += count
        if self._consumed >= CREDIT_BYTES:
            with contextlib.suppress(SessionOver):
                self._send(s.credit_frame(self._consumed))
            self._consumed = 0

    def _add_credit(self, count: int) -> None:
        with self._writable:
            self._window.grant(count)
            self._writable.notify()

    def _end(self) -> None:
        with self._writable:
            self._ended = True
            self._writable.notify()


def open_session(transport: Transport, ref: str, opening: s.Opening) -> Session:
    """Open a session at a job. Raises what the server refuses it for."""
    endpoint = transport.endpoint
    resources = ExitStack()
    try:
        connection = resources.enter_context(
            connect(
                _address(endpoint, ref),
                additional_headers=auth_headers(endpoint),
                open_timeout=OPEN_SECONDS,
                close_timeout=2,
                compression=None,
                max_size=s.MAX_FRAME,
                proxy=None if is_loopback(endpoint.url) else True,
            )
        )
        connection.send(s.open_frame(opening))
    except InvalidStatus as refused:
        raise _refusal(refused) from refused
    except (InvalidHandshake, InvalidURI) as refused:
        raise Unreachable(
            "The server did not open a session.",
            why=f"{refused}.",
            fix="Let WebSockets through, if there is a proxy in front of the server.",
        ) from refused
    except (OSError, EOFError, ConnectionClosed) as error:
        raise unreachable(endpoint, str(error)) from error
    return Session(connection, resources)


def problem_of(problem: s.Problem) -> CrucibleError:
    return error_from(asdict(problem), problem.status)


def make_command(words: tuple[str, ...], size: s.Size | None = None, term: str = "") -> s.Command:
    """Return the command frame. Raises BadInput for words that no command can have."""
    try:
        return s.Command(words, size, term)
    except s.BadFrame as error:
        raise BadInput("This command cannot be run in a session.", why=f"{error}.", fix="Put it into a file.") from None


def _refusal(refused: InvalidStatus) -> CrucibleError:
    status = refused.response.status_code
    try:
        problem = json.loads(refused.response.body or b"")
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {"detail": f"The server answered {status}."}
    return error_from(problem, status)


def _address(endpoint: Endpoint, ref: str) -> str:
    return f"ws{endpoint.url.removeprefix('http')}{path_of(routes.SESSION, job=ref)}"
