"""Messages with their length before them, whole, cut, and late."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from crucible.analysis.process.protocol import receive, send

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    near, far = socket.socketpair()
    with near, far:
        yield near, far


@pytest.mark.parametrize("data", [b"a", b"x" * 1_000_000])
def test_what_is_sent_is_received_whole(pair: Pair, data: bytes) -> None:
    near, far = pair
    far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * len(data))
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * len(data))
    send(near, data)
    near.sendall(b"more")
    assert receive(far, len(data)) == data


def test_a_message_over_the_limit_comes_back_one_byte_too_long(pair: Pair) -> None:
    near, far = pair
    send(near, b"x" * 100)
    assert len(receive(far, 10)) == 11


@pytest.mark.parametrize("cut", [0, 2, 6])
def test_a_connection_that_ends_within_a_message_gives_nothing(pair: Pair, cut: int) -> None:
    near, far = pair
    near.sendall((b"\0\0\0\x05" + b"words")[:cut])
    near.close()
    assert receive(far, 100) == b""


def test_a_deadline_is_kept_whatever_comes(pair: Pair) -> None:
    near, far = pair
    near.sendall(b"\0\0\0\x05wor")
    with pytest.raises(TimeoutError):
        receive(far, 100, time.monotonic() + 0.01)
