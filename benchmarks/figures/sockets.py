"""Measure how long an event takes to reach many sockets.

The readers are plain sockets in one process that only looks when bytes come, so that little of what is measured is
theirs; they share the computer with the server all the same. Time runs from before the request that makes the event.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from benchmarks.figures.deployment import Running, busy
from benchmarks.figures.figure import Figure, median, percentile
from benchmarks.figures.measurements import submit
from crucible.wire.http.websocket import CLOSE, PING, PONG, Decoder, Handshake, encode_message

QUIET_SECONDS = 0.5
EVENT_SECONDS = 60.0
MAX_MESSAGE = 1 << 20


def crowd(server: Running, sockets: int, events: int) -> list[Figure]:
    """Measure the feed of all jobs with `sockets` readers while jobs are submitted one after the other."""
    with busy(server) as client, Readers(server, sockets).opened() as readers:
        submit(client, 1)
        readers.settle()
        took: list[float] = []
        for _ in range(events):
            began = time.perf_counter()
            asking = threading.Thread(target=submit, args=(client, 1))
            asking.start()
            took += [(at - began) * 1000 for at in readers.first_messages()]
            asking.join()
            readers.settle()
    also = {"p50": median(took), "slowest": max(took)}
    name = f"an event to {sockets:,} sockets, p99"
    return [Figure(name=name, value=percentile(took, 0.99), bound=400, unit="ms", also=also)]


class Readers:
    """WebSockets that follow the feed from now on."""

    def __init__(self, server: Running, count: int) -> None:
        self._server = server
        self._count = count
        self._sockets: dict[int, socket.socket] = {}
        self._decoders: dict[int, Decoder] = {}
        self._poll = select.epoll()

    @contextlib.contextmanager
    def opened(self) -> Iterator[Readers]:
        try:
            after = self._newest()
            for _ in range(self._count):
                self._open(after)
            yield self
        finally:
            for opened in self._sockets.values():
                opened.close()
            self._poll.close()

    def first_messages(self) -> list[float]:
        """Return when each socket got the next message."""
        came: dict[int, float] = {}
        deadline = time.monotonic() + EVENT_SECONDS
        while len(came) < self._count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self._count - len(came)} of {self._count} sockets received nothing")
            for number, _ in self._poll.poll(1.0, self._count):
                if self._read(number):
                    came.setdefault(number, time.perf_counter())
        return list(came.values())

    def settle(self) -> None:
        """Read until no message has arrived for a while. Pings do not count: of many sockets, one is always pinged."""
        quiet_at = time.monotonic() + QUIET_SECONDS
        while (left := quiet_at - time.monotonic()) > 0:
            for number, _ in self._poll.poll(left, self._count):
                if self._read(number):
                    quiet_at = time.monotonic() + QUIET_SECONDS

    def _read(self, number: int) -> int:
        """Return the number of messages; pings are answered and do not count."""
        return self._take(number, self._sockets[number].recv(1 << 16))

    def _take(self, number: int, data: bytes) -> int:
        found = self._decoders[number].feed(data)
        if not data or any(opcode == CLOSE for opcode, _ in found):
            raise RuntimeError("the server closed a socket")
        pings = [body for opcode, body in found if opcode == PING]
        for body in pings:
            self._sockets[number].sendall(encode_message(PONG, body))
        return len(found) - len(pings)

    def _newest(self) -> int:
        with self._server.client() as client:
            after, page = 0, [{"cursor": 0}]
            while page:
                after = int(page[-1]["cursor"])
                page = client.get("/api/v1/events", params={"after": after, "limit": 1000}).json()["items"]
            return after

    def _open(self, after: int) -> None:
        where = urlsplit(self._server.url)
        opened = socket.create_connection((where.hostname or "", where.port or 0), EVENT_SECONDS)
        number = opened.fileno()
        self._sockets[number], self._decoders[number] = opened, Decoder(MAX_MESSAGE)
        bearer = {"Authorization": f"Bearer {self._server.token}"}
        handshake = Handshake.create(where.netloc, f"/api/v1/stream?after={after}", bearer)
        opened.sendall(handshake.request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += opened.recv(4096)
        head, _, rest = answer.partition(b"\r\n\r\n")
        if handshake.check(head) != 101:
            raise RuntimeError(f"no socket: {head[:200]!r}")
        self._take(number, rest) if rest else None
        self._poll.register(number, select.EPOLLIN)
