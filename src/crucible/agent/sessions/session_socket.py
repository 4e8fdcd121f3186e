"""The WebSocket of a session, opened by the agent to the agents' listener."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time

from crucible.agent.link.connection import Refused, ServerAddress, Unreachable, connect
from crucible.wire.http import websocket as ws
from crucible.wire.http.client import HttpError
from crucible.wire.http.sessions import MAX_FRAME

SEND_SECONDS = 30.0
CLOSE_SECONDS = 2.0
_READ = 64 * 1024


class SocketLost(Exception):
    """The connection is lost or was closed."""


class SessionSocket:
    """A socket of frames to and from the other end. For one thread."""

    def __init__(self, connection: socket.socket, rest: bytes = b"") -> None:
        self._socket = connection
        self._decoder = ws.Decoder(MAX_FRAME + 1024)
        self._early = rest
        self._frames: list[bytes] = []

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def has_more(self) -> bool:
        """Whether buffered data can be received (here or in TLS) although the descriptor is not readable."""
        return bool(self._early or self._frames) or (
            isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
        )

    def receive(self) -> list[bytes]:
        """Return received frames, perhaps none. Blocks only if nothing is readable. Raises SocketLost."""
        if self._frames:
            frames, self._frames = self._frames, []
            return frames
        received, self._early = self._early or self._read(), b""
        frames = []
        try:
            messages = self._decoder.feed(received)
        except ws.BadWebSocket as error:
            raise SocketLost(str(error)) from error
        for opcode, payload in messages:
            if opcode == ws.PING:
                self._send(ws.PONG, payload)
            elif opcode == ws.BINARY:
                frames.append(payload)
            elif opcode != ws.PONG:
                raise SocketLost("it was closed")
        return frames

    def wait_for_frame(self, seconds: float) -> bytes:
        """Wait for a frame and return it. Further ones are kept for `receive`. Raises SocketLost."""
        deadline = time.monotonic() + seconds
        while True:
            self._socket.settimeout(max(0.01, deadline - time.monotonic()))
            frames = self.receive()
            if frames:
                first, *self._frames = frames
                return first
            if time.monotonic() > deadline:
                raise SocketLost("nothing came")

    def send(self, frame: bytes) -> None:
        """Send a frame. Raises SocketLost if it cannot be sent in time."""
        self._send(ws.BINARY, frame)

    def close(self) -> None:
        """Close the socket, and read what the other side still sends.

        Closing a TCP socket with unread input resets the connection, and the reset may discard our last frames.
        """
        with contextlib.suppress(OSError, SocketLost):
            self._send(ws.CLOSE, (1000).to_bytes(2, "big"))
            deadline = time.monotonic() + CLOSE_SECONDS
            while time.monotonic() < deadline:
                self._socket.settimeout(max(0.01, deadline - time.monotonic()))
                self._read()
        self._socket.close()

    def _send(self, opcode: int, payload: bytes) -> None:
        try:
            self._socket.settimeout(SEND_SECONDS)
            self._socket.sendall(ws.encode_message(opcode, payload))
        except OSError as error:
            raise SocketLost(str(error)) from error

    def _read(self) -> bytes:
        try:
            received = self._socket.recv(_READ)
        except OSError as error:
            raise SocketLost(str(error)) from error
        if not received:
            raise SocketLost("the other end has disconnected")
        return received


def open_session_socket(address: ServerAddress, path: str, bearer: str) -> SessionSocket:
    """Connect to the server. Raises Unreachable, or Refused with the status of the answer."""
    client = connect(address)
    base = client.base
    try:
        handshake = ws.Handshake.create(base.authority, base.path + path, {"Authorization": f"Bearer {bearer}"})
        connection = client.connect().sock
    except (HttpError, ValueError) as error:
        raise Unreachable(f"cannot connect to the server: {error}") from error
    try:
        connection.sendall(handshake.request)
        head, rest = _head(connection)
        status = handshake.check(head)
    except (OSError, ValueError) as error:
        connection.close()
        raise Unreachable(f"no answer from the server: {error}") from error
    if status != 101:
        connection.close()
        raise Refused(status, "the session is not there, or not for this attempt")
    return SessionSocket(connection, rest)


def _head(connection: socket.socket) -> tuple[bytes, bytes]:
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(4096)
        if not part or len(received) > ws.MAX_HEAD:
            raise ws.BadWebSocket("the answer ended early")
        received += part
    head, _, rest = received.partition(b"\r\n\r\n")
    return head, rest
