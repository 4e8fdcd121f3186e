"""A connection of a session to a loopback port on which a process of the job listens."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Optional

from crucible.agent.sessions.endpoint import JobContext
from crucible.agent.sessions.ports import ListeningPort, PortsUnknown, find_ports
from crucible.wire.http.sessions import FrameKind, Over, Problem, Size

CONNECT_SECONDS = 5.0


class NoConnection(Exception):
    """The port cannot be connected to. `problem` says why, and what to do."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.what)
        self.problem = problem


class PortEndpoint:
    """An open connection; each side may end before the other. The constructor raises NoConnection."""

    waker: Optional[int] = None

    def __init__(self, port: int, around: JobContext) -> None:
        self._socket = _connected(port, around)
        self._socket.setblocking(False)
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = self._socket.fileno()
        self.sources: dict[int, FrameKind] = {number: FrameKind.DATA}
        self.sink: Optional[int] = number

    def read(self, source: int, size: int) -> bytes:
        try:
            received = self._socket.recv(size)
        except BlockingIOError:
            return b""
        except OSError:  # connection reset
            received, self.sink = b"", None
        if not received:
            self.sources.clear()
        return received

    def write(self, data: bytes) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self.sink = None
            return 0

    def end_input(self) -> None:
        self.sink = None
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def resize(self, size: Size) -> None:
        """Do nothing: a connection has no window size."""

    def over(self) -> Optional[Over]:
        """Return the result once both sides have ended, or the connection is broken."""
        return Over(code=0) if not self.sources and self.sink is None else None

    def leave(self) -> None:
        self._socket.close()


def listening_ports(around: JobContext) -> dict[int, ListeningPort]:
    """Return the ports on which the job listens. Raises NoConnection if the system does not show them."""
    own = os.getpid()
    try:
        return find_ports([pid for pid in around.pids() if pid != own])
    except PortsUnknown as error:
        raise NoConnection(
            Problem(
                "refused_by_policy",
                403,
                "Ports of this machine cannot be forwarded.",
                f"Only those of the job's own processes may be, and its system does not say which they are: {error}.",
                "Run the job on Linux.",
            )
        ) from error


def _connected(port: int, around: JobContext) -> socket.socket:
    found = listening_ports(around)
    if port not in found:
        raise NoConnection(_not_listening(port, sorted(found)))
    address = found[port].address
    if address is None:
        raise NoConnection(
            Problem(
                "conflict",
                409,
                f"Port {port} of the job is not open to its own machine's loopback.",
                "Only 127.0.0.1 and ::1 of the machine are reached, never another address.",
                "Let the program listen on 127.0.0.1 (or 0.0.0.0).",
            )
        )
    try:
        return socket.create_connection((address, port), CONNECT_SECONDS)
    except OSError as error:
        what = f"The program does not take connections at port {port}."
        raise NoConnection(Problem("unreachable", 503, what, f"{error}.", "Try again once it does.")) from error


def _not_listening(port: int, known: list[int]) -> Problem:
    listed = ", ".join(map(str, known)) or "none"
    return Problem(
        "conflict",
        409,
        f"No process of the job listens on port {port}.",
        f"Ports it listens on: {listed}.",
        "Name one of these, or wait until the program has opened it: `crucible ports JOB` lists them.",
    )
