"""A line to PostgreSQL that breaks at COMMIT, in the ways that lines and servers have."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg

COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"
READY = b"Z\x00\x00\x00\x05I"


def _message(kind: bytes, severity: str, code: str, text: str) -> bytes:
    fields = (f"S{severity}", f"V{severity}", f"C{code}", f"M{text}", "")
    body = b"".join(field.encode() + b"\0" for field in fields)
    return kind + struct.pack("!i", len(body) + 4) + body


STOPPING = _message(b"E", "FATAL", "57P01", "terminating connection due to administrator command")
LOST_BEHIND = _message(b"E", "ERROR", "08006", "the pooler lost its server") + READY
CRASHING = _message(b"N", "WARNING", "57P02", "terminating connection because of crash of another server process")


def hang_up(client: socket.socket) -> None:
    """FIN, by the close that follows."""


def reset(client: socket.socket) -> None:
    """RST instead of FIN."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def announce(client: socket.socket) -> None:
    """An orderly stop of the server: 57P01, then FIN."""
    client.sendall(STOPPING)


def announce_and_reset(client: socket.socket) -> None:
    client.sendall(STOPPING)
    reset(client)


def stay(client: socket.socket) -> None:
    """A pooler that lost its server says so and keeps the client."""
    client.sendall(LOST_BEHIND)


def say_nothing(client: socket.socket) -> None:
    """Ready for more, without a word on what became of COMMIT."""
    client.sendall(READY)


ENDS: tuple[Callable[[socket.socket], None], ...] = (hang_up, reset, announce, announce_and_reset, stay, say_nothing)


@dataclass
class _Line:
    client: socket.socket
    upstream: socket.socket
    deaf: threading.Event = field(default_factory=threading.Event)
    """What the server says from here on reaches nobody."""
    closed: threading.Event = field(default_factory=threading.Event)

    def let_server_go(self) -> None:
        self.deaf.set()
        with suppress(OSError):
            self.upstream.shutdown(socket.SHUT_RDWR)

    def pass_answers(self) -> None:
        with suppress(OSError):
            while data := self.upstream.recv(65536):
                if not self.deaf.is_set():
                    self.client.sendall(data)
            if not self.deaf.is_set():
                self.client.shutdown(socket.SHUT_WR)


class Proxy:
    """Stands between client and server, and cuts the line at the next COMMIT: before it is passed on, or after
    the server has answered it, with something done in between. `end` is how the client learns of it.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lines: list[_Line] = []
        self.port: int = self._listener.getsockname()[1]
        self.before: Callable[[], None] | None = None
        self.after: Callable[[], None] | None = None
        self.end: Callable[[socket.socket], None] = hang_up
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def lines(self) -> int:
        return len(self._lines)

    def close(self) -> None:
        self._listener.close()

    def crash(self) -> None:
        """What a crashing server leaves on every line: a warning that nobody has read yet, and a line that takes
        nothing more. The next thing sent fails while there is still something to read.
        """
        for line in tuple(self._lines):
            line.let_server_go()
            line.client.sendall(CRASHING)
            reset(line.client)
            line.client.shutdown(socket.SHUT_RD)  # wakes the thread that reads it, which closes it
            assert line.closed.wait(30)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        upstream = socket.create_connection(("127.0.0.1", self._server_port))
        line = _Line(client, upstream)
        self._lines.append(line)
        with upstream, client, suppress(OSError):
            threading.Thread(target=line.pass_answers, daemon=True).start()
            while data := client.recv(65536):
                if COMMIT in data and self._cut(line, data):
                    break
                upstream.sendall(data)
        self._lines.remove(line)
        line.closed.set()

    def _cut(self, line: _Line, data: bytes) -> bool:
        if self.before is not None:
            act, self.before = self.before, None
            line.deaf.set()
            act()
        elif self.after is not None:
            act, self.after = self.after, None
            line.deaf.set()
            line.upstream.sendall(data)
            _let_commit(self._server_port)
            act()
        else:
            return False
        line.let_server_go()
        self.end(line.client)
        return True


def _let_commit(port: int) -> None:
    """Waits until no transaction is open that writes."""
    busy = "SELECT 1 FROM pg_stat_activity WHERE backend_xid IS NOT NULL"
    with psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres", autocommit=True) as watcher:
        end = time.monotonic() + 30
        while watcher.execute(busy).fetchone():
            assert time.monotonic() < end
