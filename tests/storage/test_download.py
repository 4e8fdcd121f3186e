from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.storage.download import ByteRange, parse_range
from crucible.storage.errors import BadRange


@pytest.mark.parametrize(
    ("header", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=2-5", 2, 6),
        ("bytes=2-", 2, 10),
        ("bytes=0-", 0, 10),
        ("bytes=5-999", 5, 10),
        ("bytes=-3", 7, 10),
        ("bytes=-99", 0, 10),
        ("Bytes = 1-2 ", 1, 3),
    ],
)
def test_one_range(header: str, start: int, end: int) -> None:
    assert parse_range(header, 10) == ByteRange(start, end, 10)


@pytest.mark.parametrize("header", [None, "", "items=0-1", "bytes", "bytes=0-1,3-4", "0-1"])
def test_what_asks_for_all(header: str | None) -> None:
    assert parse_range(header, 10) is None


@pytest.mark.parametrize(
    "header",
    [
        "bytes=",
        "bytes=-",
        "bytes=a-b",
        "bytes=1",
        "bytes=5-2",
        "bytes=10-",
        "bytes=10-11",
        "bytes=-0",
        "bytes=--1",
        "bytes=+1-2",
        "bytes=1-2-3",
        "bytes=١-٢",
        "bytes=" + "9" * 5000 + "-",
    ],
)
def test_what_cannot_be_served(header: str) -> None:
    with pytest.raises(BadRange) as caught:
        parse_range(header, 10)
    assert caught.value.http_status == 416
    assert caught.value.data["size"] == 10


def test_nothing_can_be_asked_of_an_empty_object() -> None:
    assert parse_range(None, 0) is None
    for header in ("bytes=0-", "bytes=-5", "bytes=0-0"):
        with pytest.raises(BadRange):
            parse_range(header, 0)


def test_the_answer_names_what_is_sent() -> None:
    found = parse_range("bytes=2-5", 10)
    assert found is not None
    assert found.length == 4
    assert found.content_range == "bytes 2-5/10"


@given(st.text("bytes=-0123 ,", max_size=20), st.integers(0, 50))
def test_any_header_gives_a_part_of_the_object_or_an_error(header: str, size: int) -> None:
    try:
        found = parse_range(header, size)
    except BadRange:
        return
    assert found is None or 0 <= found.start < found.end <= size
