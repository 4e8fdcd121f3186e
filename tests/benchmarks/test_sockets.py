"""The readers of the benchmark of sockets: what they count, and when they are settled."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.figures import sockets
from benchmarks.figures.sockets import Readers

from crucible.wire.http.websocket import BINARY, CLOSE, PING, PONG, TEXT, Decoder

pytestmark = pytest.mark.enable_socket


def framed(opcode: int, body: bytes = b"") -> bytes:
    """As a server sends it: without a mask."""
    assert len(body) < 126
    return bytes([0x80 | opcode, len(body)]) + body


@pytest.fixture
def lines() -> Iterator[tuple[Readers, list[socket.socket]]]:
    """Readers of two open sockets, and the server's ends."""
    server: Any = None
    readers = Readers(server, 2)
    theirs = []
    for _ in range(2):
        mine, other = socket.socketpair()
        readers._sockets[mine.fileno()], readers._decoders[mine.fileno()] = mine, Decoder(1000)
        readers._poll.register(mine.fileno(), sockets.select.EPOLLIN)
        theirs.append(other)
    yield readers, theirs
    for one in (*readers._sockets.values(), *theirs):
        one.close()
    readers._poll.close()


def test_pings_are_answered_and_count_for_nothing(lines: tuple[Readers, list[socket.socket]]) -> None:
    readers, (first, second) = lines
    numbers = list(readers._sockets)
    first.sendall(framed(PING, b"a") + framed(TEXT, b"x") + framed(PING, b"b") + framed(BINARY, b"y"))
    second.sendall(framed(PING))
    assert [readers._read(number) for number in numbers] == [2, 0]
    answered = first.recv(100)
    assert (answered[0], len(answered)) == (0x80 | PONG, 14), "one for each, with a body of one byte"
    assert second.recv(100)[0] == 0x80 | PONG


def test_half_a_message_is_none_yet(lines: tuple[Readers, list[socket.socket]]) -> None:
    readers, (first, _) = lines
    number, whole = next(iter(readers._sockets)), framed(TEXT, bytes([0x89, 0x00]) * 20)
    first.sendall(whole[:10])
    assert readers._read(number) == 0
    first.sendall(whole[10:])
    assert readers._read(number) == 1


def test_they_settle_though_pings_never_stop(
    lines: tuple[Readers, list[socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "QUIET_SECONDS", 0.2)
    readers, (first, _) = lines
    over = threading.Event()

    def ping() -> None:
        while not over.wait(0.01):
            first.sendall(framed(PING, b"!"))
            first.recv(100)

    pinging = threading.Thread(target=ping, daemon=True)
    pinging.start()
    settling = threading.Thread(target=readers.settle, daemon=True)
    settling.start()
    settling.join(20)
    settled = not settling.is_alive()
    over.set()
    pinging.join(20)
    assert settled


def test_a_socket_that_is_closed_is_an_error(lines: tuple[Readers, list[socket.socket]]) -> None:
    readers, (first, second) = lines
    first.sendall(framed(CLOSE))
    second.close()
    for number in list(readers._sockets):
        with pytest.raises(RuntimeError, match="closed"):
            readers._read(number)
