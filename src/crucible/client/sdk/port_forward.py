"""Forwards a local port to a port of a running job; each connection is a session of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from crucible.client.transport.http import Transport
from crucible.client.transport.sessions import Session, SessionOver, open_session
from crucible.core.errors import BadInput, Conflict, CrucibleError
from crucible.wire.http.sessions import CHUNK, Connection, FrameKind, Ports

HOST = "127.0.0.1"
MAX_CONNECTIONS = 40
"""Open connections through one forwarded port."""
_BACKLOG = 64


def ports_of(transport: Transport, ref: str) -> tuple[int, ...]:
    """Return the ports that processes of the job listen on."""
    with open_session(transport, ref, Ports()) as session:
        for _ in session.frames():
            pass
    assert session.over is not None
    return session.over.ports


def require_port(known: tuple[int, ...], port: int) -> None:
    """Raise Conflict unless the job listens on the port."""
    if port not in known:
        ports = ", ".join(map(str, known)) or "none"
        raise Conflict(
            f"No process of the job listens on port {port}.",
            why=f"Ports it listens on: {ports}.",
            fix="Choose one of these, or wait until the program has opened it.",
            ports=list(known),
        )


class PortForward(contextlib.AbstractContextManager["PortForward"]):
    """Listens on 127.0.0.1 at port `local` from creation until `close`. `notice` is called with errors."""

    def __init__(
        self,
        transport: Transport,
        ref: str,
        remote: int,
        local: int | None = None,
        notice: Callable[[CrucibleError], None] = lambda error: None,
    ) -> None:
        self._transport = transport
        self._ref = ref
        self.remote = remote
        self._notice = notice
        self._listener = _listen(remote if local is None else local)
        self.local = int(self._listener.getsockname()[1])
        self._open: set[Session] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)
        threading.Thread(target=self._accept, name="crucible-forward", daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.local}"

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and close all connections."""
        with self._lock:
            self._closed = True
            sessions = list(self._open)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for connections
        self._listener.close()
        for session in sessions:
            session.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if not self._room.acquire(blocking=False):
                connection.close()
                self._notice(_too_many(self.remote))
                continue
            threading.Thread(target=self._serve, args=(connection,), name="crucible-forward", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Forward one connection; `notice` is called before the connecting program sees the end."""
        with connection:
            try:
                self._forward(connection)
            except CrucibleError as error:
                if not self._closed:
                    self._notice(error)
            finally:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it
                self._room.release()

    def _forward(self, connection: socket.socket) -> None:
        with open_session(self._transport, self._ref, Connection(self.remote)) as session:
            with self._lock:
                if self._closed:
                    return
                self._open.add(session)
            try:
                _copy_both_ways(connection, session)
            finally:
                with self._lock:
                    self._open.discard(session)


def _copy_both_ways(connection: socket.socket, session: Session) -> None:
    """Copy bytes both ways until both sides have ended, or one fails."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        for kind, content in session.frames():
            if kind is FrameKind.READY:
                threading.Thread(target=_send, args=(connection, session), name="crucible-up", daemon=True).start()
            elif kind is FrameKind.DATA:
                connection.sendall(content)
            elif kind is FrameKind.END:
                connection.shutdown(socket.SHUT_WR)
    except OSError:  # the connecting program has gone
        return


def _send(connection: socket.socket, session: Session) -> None:
    try:
        while content := connection.recv(CHUNK):
            session.write(content)
        session.end_input()
    except SessionOver:
        return
    except OSError:
        session.close()


def _too_many(port: int) -> Conflict:
    return Conflict(
        f"More than {MAX_CONNECTIONS} connections to port {port} at once.",
        why="Each is a session at the job; one was rejected.",
        fix="Close some, or let the connecting program reuse its connections.",
    )


def _listen(port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise BadInput(f"{port} is not a port.", fix="Give a number from 1 to 65535, or 0 for any free one.")
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise Conflict(
            f"Port {port} of this computer cannot be used.",
            why=f"{error.strerror}.",
            fix="Name another after a colon, such as 8888:9999, or 8888:0 for any free one.",
        ) from error
    return listener
