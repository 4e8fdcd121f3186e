"""One event to many sockets: how long until each has it.

The readers are plain sockets in one process that only looks when bytes come, so that little of what is measured is
theirs; they share the computer with the server all the same. Time runs from before the request that makes the event.
"""

from __future__ import annotations

import base64
import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from benchmarks.figures.deployment import Running, busy
from benchmarks.figures.figure import Figure, median, percentile
from benchmarks.figures.measuring import submit

QUIET_SECONDS = 0.5
EVENT_SECONDS = 60.0
PING, PONG = 0x89, 0x8A


def crowd(server: Running, sockets: int, events: int) -> list[Figure]:
    """The feed of all jobs, followed by `sockets` readers, while one job after the other is submitted."""
    with busy(server) as client, Readers(server, sockets).opened() as readers:
        submit(client, 1)
        readers.settle()
        took: list[float] = []
        for _ in range(events):
            began = time.perf_counter()
            asking = threading.Thread(target=submit, args=(client, 1))
            asking.start()
            took += [(at - began) * 1000 for at in readers.first_bytes()]
            asking.join()
            readers.settle()
    also = {"p50": median(took), "slowest": max(took)}
    name = f"an event to {sockets:,} sockets, p99"
    return [Figure(name=name, value=percentile(took, 0.99), bound=200, unit="ms", also=also)]


class Readers:
    """WebSockets of the feed that begin after all that has happened so far."""

    def __init__(self, server: Running, count: int) -> None:
        self._server = server
        self._count = count
        self._sockets: dict[int, socket.socket] = {}
        self._poll = select.epoll()

    @contextlib.contextmanager
    def opened(self) -> Iterator[Readers]:
        try:
            after = self._newest()
            for _ in range(self._count):
                opened = self._open(after)
                self._sockets[opened.fileno()] = opened
                self._poll.register(opened.fileno(), select.EPOLLIN)
            yield self
        finally:
            for opened in self._sockets.values():
                opened.close()
            self._poll.close()

    def first_bytes(self) -> list[float]:
        """When each of the sockets got the first of what comes now."""
        came: dict[int, float] = {}
        deadline = time.monotonic() + EVENT_SECONDS
        while len(came) < self._count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self._count - len(came)} of {self._count} sockets got nothing")
            for number, _ in self._poll.poll(1.0, self._count):
                if self._read(number):
                    came.setdefault(number, time.perf_counter())
        return list(came.values())

    def settle(self) -> None:
        """Read until nothing has come for a while."""
        while found := self._poll.poll(QUIET_SECONDS, self._count):
            for number, _ in found:
                self._read(number)

    def _read(self, number: int) -> bool:
        """Whether a frame came; pings are answered and do not count."""
        data = self._sockets[number].recv(1 << 16)
        if not data:
            raise RuntimeError("the server closed a socket")
        if data[0] != PING:
            return True
        body = data[2 : 2 + data[1]]
        self._sockets[number].sendall(bytes([PONG, 0x80 | len(body), 0, 0, 0, 0]) + body)
        return len(data) > 2 + len(body)

    def _newest(self) -> int:
        with self._server.client() as client:
            after, page = 0, [{"cursor": 0}]
            while page:
                after = int(page[-1]["cursor"])
                page = client.get("/api/v1/events", params={"after": after, "limit": 1000}).json()["items"]
            return after

    def _open(self, after: int) -> socket.socket:
        where = urlsplit(self._server.url)
        opened = socket.create_connection((where.hostname or "", where.port or 0), EVENT_SECONDS)
        key = base64.b64encode(os.urandom(16)).decode()
        opened.sendall(
            f"GET /api/v1/stream?after={after} HTTP/1.1\r\nHost: {where.netloc}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            f"Authorization: Bearer {self._server.token}\r\n\r\n".encode()
        )
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += opened.recv(4096)
        if not answer.startswith(b"HTTP/1.1 101"):
            raise RuntimeError(f"no socket: {answer[:200]!r}")
        return opened
