"""A session at a running job: frames over a WebSocket, with credit both ways (see `crucible.wire.http.sessions`)."""

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
    """Nothing can be sent any more."""


class Session(AbstractContextManager["Session"]):
    """One session, from its opening on. One thread reads `frames`, another may write."""

    def __init__(self, connection: ClientConnection, held: ExitStack) -> None:
        self._connection = connection
        self._held = held
        self._window = s.CreditWindow()
        self._room = threading.Condition()
        self._ended = False
        self._passed_on = 0
        self.over: s.Over | None = None
        """How it ended, after the last of `frames`."""

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, whatever it is at; what runs for it is ended there."""
        self._end()
        with contextlib.suppress(OSError):
            self._held.close()

    def frames(self) -> Iterator[tuple[s.FrameKind, bytes]]:
        """READY, data and ends, as they come; a piece counts as passed on when the next is asked for.

        After the last `over` says how it ended. Raises what the server or the agent refused it for.
        """
        try:
            while self.over is None:
                frame = self._received()
                kind = s.frame_kind(frame, s.FROM_AGENT)
                if kind is s.FrameKind.CREDIT:
                    self._give(s.read_credit(frame))
                elif kind is s.FrameKind.OVER:
                    self.over = s.read_over(frame)
                else:
                    yield kind, frame[1:]
                    self._pass_on(len(frame) - 1)
        except s.BadFrame as error:
            raise Unreachable(
                "The server does not speak as it should.",
                why=f"{error}.",
                fix="Let this computer, the server and the job's agent have the same version: crucible --version",
            ) from error
        finally:
            self._end()
        if self.over.problem is not None:
            raise problem_of(self.over.problem)

    def write(self, data: bytes) -> None:
        """Send input, once there is room for it; raises SessionOver."""
        for at in range(0, len(data), s.CHUNK):
            part = data[at : at + s.CHUNK]
            with self._room:
                self._room.wait_for(lambda: self._ended or self._window.room >= s.CHUNK)
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

    def _received(self) -> bytes:
        try:
            frame = self._connection.recv()
        except (ConnectionClosed, OSError) as error:
            raise Unreachable(
                "The session broke off.",
                why="The server has gone, or the way to it.",
                fix="The job goes on; try again.",
            ) from error
        return frame if isinstance(frame, bytes) else frame.encode()

    def _pass_on(self, count: int) -> None:
        self._passed_on += count
        if self._passed_on >= CREDIT_BYTES:
            with contextlib.suppress(SessionOver):
                self._send(s.credit_frame(self._passed_on))
            self._passed_on = 0

    def _give(self, count: int) -> None:
        with self._room:
            self._window.grant(count)
            self._room.notify()

    def _end(self) -> None:
        with self._room:
            self._ended = True
            self._room.notify()


def open_session(transport: Transport, ref: str, wanted: s.Opening) -> Session:
    """A session at a job; raises what the server refuses it for."""
    endpoint = transport.endpoint
    held = ExitStack()
    try:
        connection = held.enter_context(
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
        connection.send(s.open_frame(wanted))
    except InvalidStatus as refused:
        raise _refusal(refused) from refused
    except (InvalidHandshake, InvalidURI) as refused:
        raise Unreachable(
            "The server does not open sessions.",
            why=f"{refused}.",
            fix="A proxy in front of it has to let WebSockets through.",
        ) from refused
    except (OSError, EOFError, ConnectionClosed) as error:
        raise unreachable(endpoint, str(error)) from error
    return Session(connection, held)


def problem_of(problem: s.Problem) -> CrucibleError:
    return error_from(asdict(problem), problem.status)


def command_of(words: tuple[str, ...], size: s.Size | None = None, term: str = "") -> s.Command:
    """Raises BadInput for what no command can be."""
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
