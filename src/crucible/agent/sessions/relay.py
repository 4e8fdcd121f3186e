"""Relay the bytes of one session between its socket and its endpoint, without blocking on either."""

from __future__ import annotations

import select

from crucible.agent.output.redaction import Redactor
from crucible.agent.sessions.endpoint import SessionEndpoint
from crucible.agent.sessions.session_socket import SessionSocket
from crucible.wire.http import sessions as s

TURN_SECONDS = 1.0
CREDIT_BYTES = s.WINDOW // 4
"""Credit is granted in steps of this size, while the other side still has some."""


class SessionRelay:
    """One session from READY to OVER. Raises SocketLost, and BadFrame for a frame that the client may not send."""

    def __init__(
        self, socket: SessionSocket, peer: SessionEndpoint, secrets: tuple[str, ...] = (), *, sends_end: bool = False
    ) -> None:
        """`sends_end`: send END at the end of the source, which does not end the session (a half-closed connection)."""
        self._socket = socket
        self._peer = peer
        self._redactors = {source: Redactor(secrets) for source in peer.sources}
        self._sends_end = sends_end
        self._window, self._allowed = s.CreditWindow(), s.CreditWindow()
        self._input = b""
        self._input_ended = False
        self._written = 0

    def run(self) -> None:
        self._socket.send(s.ready_frame())
        over = None
        while over is None:
            self._turn()
            over = self._peer.over()
        self._socket.send(s.over_frame(over))

    def _turn(self) -> None:
        peer = self._peer
        sources = list(peer.sources) if self._window.room > 0 else []
        reading = [self._socket.fileno(), *sources, *([] if peer.waker is None else [peer.waker])]
        writing = [peer.sink] if self._input and peer.sink is not None else []
        pause = 0.0 if self._socket.has_more else TURN_SECONDS
        ready, writable, _ = select.select(reading, writing, [], pause)
        if self._socket.fileno() in ready or self._socket.has_more:
            for frame in self._socket.receive():
                self._receive_frame(frame)
        for source in sources:
            if source in ready:
                self._send_output(source)
        if writable or (self._input and peer.sink is None):
            self._write_input()

    def _receive_frame(self, frame: bytes) -> None:
        kind = s.frame_kind(frame, s.FROM_CLIENT)
        if kind is s.FrameKind.DATA:
            self._allowed.receive(len(frame) - 1)
            self._input += frame[1:]
        elif kind is s.FrameKind.END:
            self._input_ended = True
        elif kind is s.FrameKind.CREDIT:
            self._window.grant(s.read_credit(frame))
        elif kind is s.FrameKind.RESIZE:
            self._peer.resize(s.read_size(frame))
        else:
            raise s.BadFrame("a session is opened once")
        self._write_input()

    def _write_input(self) -> None:
        """Write input to the sink; drop it if there is no sink any more."""
        taken = self._peer.write(self._input) if self._input and self._peer.sink is not None else 0
        count = self._dropped() or taken
        self._input = self._input[count:]
        self._allowed.grant(count)
        self._written += count
        if self._written >= CREDIT_BYTES:
            self._socket.send(s.credit_frame(self._written))
            self._written = 0
        if self._input_ended and not self._input:
            self._input_ended = False
            self._peer.end_input()

    def _dropped(self) -> int:
        return len(self._input) if self._peer.sink is None else 0

    def _send_output(self, source: int) -> None:
        kind, redactor = self._peer.sources[source], self._redactors[source]
        received = self._peer.read(source, min(s.CHUNK, self._window.room))
        ended = source not in self._peer.sources
        masked = redactor.feed(received) + (redactor.finish() if ended else b"")
        for at in range(0, len(masked), s.CHUNK):
            self._socket.send(s.data_frame(masked[at : at + s.CHUNK], kind))
        self._window.spend(len(masked))
        if ended and self._sends_end:
            self._socket.send(s.end_frame())
