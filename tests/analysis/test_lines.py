"""Lines that are kept, and what goes over them."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from crucible.analysis.asking import AT_REST, receive, send
from crucible.analysis.lines import Lines

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    """Lines and their far ends."""
    with ExitStack() as closing:
        made = [socket.socketpair() for _ in range(4)]
        for ends in made:
            for each in ends:
                closing.enter_context(each)
        yield made


def rest(pair: Pair) -> socket.socket:
    pair[1].sendall(AT_REST)
    return pair[0]


def test_one_that_is_at_rest_is_given_once(pairs: list[Pair]) -> None:
    lines = Lines(2)
    lines.keep("ada", rest(pairs[0]))
    assert lines.take("bob") is None
    assert lines.take(None) is None
    assert lines.take("ada") is pairs[0][0]
    assert lines.take("ada") is None


def test_one_that_has_not_done_with_its_answer_is_left_until_it_has(pairs: list[Pair]) -> None:
    lines = Lines(2)
    lines.keep("ada", pairs[0][0])
    assert lines.take("ada") is None
    rest(pairs[0])
    assert lines.take("ada") is pairs[0][0]


def test_the_newest_comes_first_and_others_stay(pairs: list[Pair]) -> None:
    lines = Lines(4)
    for pair in pairs[:3]:
        lines.keep("ada", rest(pair))
    assert lines.take("ada") is pairs[2][0]
    assert lines.take("ada") is pairs[1][0]


@pytest.mark.parametrize("said", [b"", b"x", b"a whole answer"])
def test_one_that_is_gone_or_says_something_else_is_closed(pairs: list[Pair], said: bytes) -> None:
    lines = Lines(2)
    lines.keep("ada", pairs[0][0])
    pairs[0][1].sendall(said)
    pairs[0][1].shutdown(socket.SHUT_WR)
    assert lines.take("ada") is None
    assert pairs[0][0].fileno() == -1


def test_beyond_the_most_the_oldest_is_closed(pairs: list[Pair]) -> None:
    lines = Lines(2)
    for pair, whose in zip(pairs, ("ada", "bob", "eve"), strict=False):
        lines.keep(whose, rest(pair))
    assert pairs[0][0].fileno() == -1
    assert lines.take("ada") is None
    assert lines.take("bob") is pairs[1][0]
    lines.close()
    assert pairs[2][0].fileno() == -1


@pytest.mark.parametrize("data", [b"a", b"x" * 1_000_000])
def test_what_is_sent_is_received_whole(pairs: list[Pair], data: bytes) -> None:
    near, far = pairs[0]
    far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * len(data))
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * len(data))
    send(near, data)
    near.sendall(b"more")
    assert receive(far, len(data)) == data


def test_more_than_the_most_is_told_by_one_byte(pairs: list[Pair]) -> None:
    near, far = pairs[0]
    send(near, b"x" * 100)
    assert len(receive(far, 10)) == 11


@pytest.mark.parametrize("cut", [0, 2, 6])
def test_a_line_that_ends_before_its_end_has_said_nothing(pairs: list[Pair], cut: int) -> None:
    near, far = pairs[0]
    near.sendall((b"\0\0\0\x05" + b"words")[:cut])
    near.close()
    assert receive(far, 100) == b""


def test_a_deadline_is_kept_whatever_comes(pairs: list[Pair]) -> None:
    near, far = pairs[0]
    near.sendall(b"\0\0\0\x05wor")
    with pytest.raises(TimeoutError):
        receive(far, 100, time.monotonic() + 0.01)
