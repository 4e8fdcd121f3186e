from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

from crucible.storage.errors import NotFound, StorageError
from crucible.storage.layout import log_segment_key
from crucible.storage.logs import Line, LogStore, Segment
from crucible.storage.objects import ObjectStore
from crucible.storage.store import Store


def stored(store: Store, parts: list[bytes]) -> list[Segment]:
    segments, start = [], 0
    for n, part in enumerate(parts):
        key = log_segment_key("j", "a", 0, n)
        store.put(key, part)
        segments.append(Segment(key, start, start + len(part)))
        start += len(part)
    return segments


def logs_of(*parts: bytes) -> tuple[LogStore, list[Segment]]:
    store = ObjectStore(MemoryStore())
    return LogStore(store), stored(store, list(parts))


PARTS = st.lists(
    st.binary(min_size=1, max_size=30) | st.text("a\n", min_size=1, max_size=9).map(str.encode), max_size=6
)


@settings(max_examples=100, deadline=None)
@given(parts=PARTS, start=st.integers(0, 100), length=st.integers(0, 100))
def test_a_range_of_segments_is_a_slice_of_their_sum(parts: list[bytes], start: int, length: int) -> None:
    logs, segments = logs_of(*parts)
    assert logs.read(segments, start, length) == b"".join(parts)[start : start + length]


@settings(max_examples=100, deadline=None)
@given(parts=PARTS, max_line=st.integers(1, 12))
def test_lines_are_those_of_the_sum_with_their_places(parts: list[bytes], max_line: int) -> None:
    logs, segments = logs_of(*parts)
    whole = b"".join(parts)
    lines = list(logs.lines(segments, max_line=max_line))
    assert b"".join(line.text + b"\n" * line.ended for line in lines) == whole
    assert all(whole[line.offset :].startswith(line.text) for line in lines)
    assert all(b"\n" not in line.text and len(line.text) <= max_line for line in lines)


def test_a_line_across_segments_is_one() -> None:
    logs, segments = logs_of(b"one\ntw", b"o\n", b"\nfo", b"ur")
    assert list(logs.lines(segments)) == [
        Line(0, b"one", True),
        Line(4, b"two", True),
        Line(8, b"", True),
        Line(9, b"four", False),
    ]
    assert [line.text for line in logs.lines(segments, start=5)] == [b"wo", b"", b"four"]
    assert list(logs.lines([])) == []


def test_an_over_long_line_comes_in_pieces() -> None:
    logs, segments = logs_of(b"abc", b"defg\nh")
    assert list(logs.lines(segments, max_line=3)) == [
        Line(0, b"abc", False),
        Line(3, b"def", False),
        Line(6, b"g", True),
        Line(8, b"h", False),
    ]


def test_a_hole_is_told_and_not_passed_over() -> None:
    logs, (first, second, third) = logs_of(b"0123", b"4567", b"89")
    with pytest.raises(StorageError, match="Bytes 4 to 8"):
        logs.read([first, third], 0, 10)
    assert logs.read([first, third], 0, 4) == b"0123"
    with pytest.raises(StorageError, match="Bytes 8 to 9"):
        logs.read([first, Segment(second.key, 4, 9)], 0, 10)
    with pytest.raises(NotFound):
        logs.read([Segment("jobs/none", 0, 5)], 0, 5)


@settings(max_examples=100, deadline=None)
@given(parts=PARTS, size=st.integers(1, 20), tail=st.text("a\n", max_size=9).map(str.encode))
def test_blocks_are_whole_lines_that_join_to_the_sum(parts: list[bytes], size: int, tail: bytes) -> None:
    logs, segments = logs_of(*parts)
    found = list(logs.blocks(segments, 0, size, tail=tail))
    assert b"".join(data for _, data in found) == b"".join(parts) + tail
    assert [offset for offset, _ in found] == [sum(len(d) for _, d in found[:n]) for n in range(len(found))]
    for _, data in found[:-1]:
        assert data.endswith(b"\n") or (b"\n" not in data and len(data) >= size)


def test_blocks_begin_where_they_are_asked_to() -> None:
    logs, segments = logs_of(b"one\ntwo\n", b"three\n")
    assert list(logs.blocks(segments, 4, 100)) == [(4, b"two\nthree\n")]
    assert list(logs.blocks([], 7, 5, tail=b"live")) == [(7, b"live")]
    assert list(logs.blocks([], 7, 5)) == []
