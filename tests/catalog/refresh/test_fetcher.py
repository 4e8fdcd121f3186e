"""Asking a price interface: what it may do to us, and what we say then."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx2
import pytest

from crucible.catalog.refresh.fetcher import BadAnswer, Fetcher
from crucible.core.errors import CrucibleError, TimedOut, Unreachable

URL = "https://prices.example.com/list"


def fetcher(answer: Callable[[httpx2.Request], httpx2.Response], **more: object) -> Fetcher:
    return Fetcher("aws", httpx2.MockTransport(answer), **more)  # type: ignore[arg-type]


def answering(status: int = 200, **content: object) -> Callable[[httpx2.Request], httpx2.Response]:
    return lambda _request: httpx2.Response(status, **content)  # type: ignore[arg-type]


def test_json_is_read() -> None:
    with fetcher(answering(json={"a": [1]})) as one:
        assert one.json(URL) == {"a": [1]}


def test_lines_are_read_as_they_come() -> None:
    with fetcher(answering(content=b"one\ntwo\nthree")) as one:
        assert list(one.lines(URL, limit=100)) == ["one\n", "two\n", "three"]


@pytest.mark.parametrize(
    "answer",
    [
        answering(content=b""),
        answering(content=b'{"a": [1, 2'),
        answering(content=b"<html>Sign in</html>"),
        answering(content=b"[" * 100_000),
        answering(content=b"\xff\xfe\x00"),
        answering(500),
        answering(404),
        answering(302, headers={"Location": "https://example.com"}),
        answering(401),
        answering(403),
        answering(429),
    ],
)
def test_nonsense_is_told_and_changes_nothing(answer: Callable[[httpx2.Request], httpx2.Response]) -> None:
    with fetcher(answer) as one, pytest.raises(BadAnswer) as caught:
        one.json(URL)
    assert "aws" in caught.value.what
    assert "old ones stay" in caught.value.why
    assert caught.value.fix


def test_an_answer_without_end_is_cut_off() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * 1024

    with (
        fetcher(lambda _request: httpx2.Response(200, content=endless())) as one,
        pytest.raises(BadAnswer, match="MiB"),
    ):
        one.json(URL, limit=100_000)


def test_a_slow_answer_is_given_up() -> None:
    times = iter(range(0, 10_000, 100))

    def slow() -> Iterator[bytes]:
        while True:
            yield b"line\n"

    found = fetcher(
        lambda _request: httpx2.Response(200, content=slow()), seconds=250.0, clock=lambda: float(next(times))
    )
    with found as one, pytest.raises(TimedOut, match="in time"):
        list(one.lines(URL, limit=10**9))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx2.ConnectTimeout("slow"), TimedOut),
        (httpx2.ReadTimeout("slow"), TimedOut),
        (httpx2.ConnectError("refused"), Unreachable),
        (httpx2.RemoteProtocolError("peer closed connection without sending complete message body"), Unreachable),
    ],
)
def test_a_broken_line_is_told(error: Exception, kind: type[CrucibleError]) -> None:
    def broken(_request: httpx2.Request) -> httpx2.Response:
        raise error

    with fetcher(broken) as one, pytest.raises(kind) as caught:
        one.json(URL)
    assert "not refreshed" in caught.value.what
    assert caught.value.fix
