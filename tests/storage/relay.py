"""A line that can be cut: forwards to a server until so many bytes have passed, then answers nobody any more."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class Relay:
    """`cut_after` counts the bytes of both directions."""

    def __init__(self, target: tuple[str, int], cut_after: int) -> None:
        self._target = target
        self._left = cut_after
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def is_cut(self) -> bool:
        return self._left <= 0

    def cut(self) -> None:
        with self._lock:
            self._left = 0
            ends, self._open = [self._listener, *self._open], []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while not self.is_cut:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                with self._lock:
                    self._open += [client, server]
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=ends, daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                with self._lock:
                    self._left -= len(data)
                if self.is_cut:
                    return self.cut()
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def relay(endpoint: str, cut_after: int) -> Iterator[tuple[Relay, str]]:
    """The relay, and the endpoint by which the server is reached through it."""
    parts = urlsplit(endpoint)
    made = Relay((parts.hostname or "", parts.port or 80), cut_after)
    try:
        yield made, f"http://127.0.0.1:{made.port}{parts.path}"
    finally:
        made.cut()


@contextmanager
def silent_server() -> Iterator[str]:
    """Takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
