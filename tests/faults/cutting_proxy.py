"""A proxy to a server that can cut an upload after any byte."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

CHECKPOINT = re.compile(rb"PUT \S*(/checkpoints/|/blobs/checkpoint-)")
"""First bytes of a checkpoint upload, to the server or to a bucket."""
_AT_ONCE = 65_536
_RESET = struct.pack("ii", 1, 0)


@dataclass
class Cut:
    """After `at` bytes of content nothing passes any more, `deed` is done, and all connections end.

    `reset`: so that what is still on its way is lost too.
    """

    at: int
    deed: Callable[[], None]
    reset: bool
    passed: int = 0
    done: threading.Event = field(default_factory=threading.Event)


class Cutter:
    """Forwards to `target`, which is called for each connection. Watches one upload at a time."""

    def __init__(self, target: Callable[[], tuple[str, int]]) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._cut: Cut | None = None
        self._is_down = False
        self._ends: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def plan(self, at: int, deed: Callable[[], None] = lambda: None, *, reset: bool = False) -> Cut:
        """Cut the next upload; no connection works until `mend`."""
        with self._lock:
            self._cut = Cut(at, deed, reset)
            return self._cut

    def mend(self) -> None:
        with self._lock:
            self._cut, self._is_down = None, False

    def close(self) -> None:
        self._listener.close()
        self._hang_up(reset=False)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if not self._connect(client):
                    client.close()

    def _connect(self, client: socket.socket) -> bool:
        try:
            server = socket.create_connection(self._target(), timeout=10)
        except (OSError, ValueError, KeyError):  # it is not there, or nobody knows yet where it is
            return False
        server.settimeout(None)
        with self._lock:
            if self._is_down:
                server.close()
                return False
            self._ends |= {client, server}
        for ends in ((client, server, True), (server, client, False)):
            threading.Thread(target=self._forward, args=ends, daemon=True).start()
        return True

    def _forward(self, source: socket.socket, sink: socket.socket, watched: bool) -> None:
        uploading = False
        with suppress(OSError):
            while data := source.recv(_AT_ONCE):
                begins = watched and CHECKPOINT.match(data) is not None
                # A connection carries one request at a time, so the next begins a piece of its own.
                uploading = begins or (uploading and _METHOD.match(data) is None)
                self._pass(data, sink, _head(data) if begins else 0, uploading)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        self._forget(source)

    def _pass(self, data: bytes, sink: socket.socket, head: int, uploading: bool) -> None:
        with self._lock:
            if self._is_down:
                return
            cut = self._cut if uploading else None
            room = len(data) if cut is None else min(len(data), head + cut.at - cut.passed)
            is_over = cut is not None and cut.passed + len(data) - head >= cut.at
            if cut is not None:
                cut.passed += len(data) - head
                self._is_down = is_over
        sink.sendall(data[:room])
        if cut is not None and is_over:
            cut.deed()
            self._hang_up(cut.reset)
            cut.done.set()

    def _hang_up(self, reset: bool) -> None:
        with self._lock:
            ends, self._ends = self._ends, set()
        for end in ends:
            with suppress(OSError):
                if reset:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                # Wakes who reads from it; without that nothing would be closed.
                end.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)
            end.close()

    def _forget(self, end: socket.socket) -> None:
        """Close the connection once both directions have ended."""
        with self._lock:
            self._ends.discard(end)
        end.close()


_METHOD = re.compile(rb"(GET|PUT|POST|HEAD|DELETE) /\S* HTTP/1\.1\r\n")


def _head(data: bytes) -> int:
    end = data.find(b"\r\n\r\n")
    return len(data) if end < 0 else end + 4


@contextmanager
def cutter(target: Callable[[], tuple[str, int]]) -> Iterator[Cutter]:
    made = Cutter(target)
    try:
        yield made
    finally:
        made.close()
