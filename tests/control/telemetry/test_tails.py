from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crucible.control.telemetry.tails import KEEP_ATTEMPTS, KEEP_BYTES, OutputTails

TEXT = bytes(i % 251 for i in range(2000))


def test_what_follows_on_is_joined() -> None:
    tails = OutputTails()
    tails.add("a", 0, b"one ")
    tails.add("a", 4, b"two")
    assert tails.read("a", 0, 100) == b"one two"
    assert tails.read("a", 2, 3) == b"e t"
    assert tails.read("a", 7, 100) == b""
    assert tails.read("b", 0, 100) == b""


def test_what_is_known_is_not_doubled() -> None:
    tails = OutputTails()
    tails.add("a", 0, b"one two")
    tails.add("a", 4, b"two three")
    tails.add("a", 0, b"one")
    assert tails.read("a", 0, 100) == b"one two three"


def test_after_a_gap_it_starts_anew() -> None:
    tails = OutputTails()
    tails.add("a", 0, b"one")
    tails.add("a", 10, b"ten")
    assert tails.read("a", 0, 100) == b""
    assert tails.read("a", 10, 100) == b"ten"


def test_older_output_never_takes_the_place_of_newer() -> None:
    tails = OutputTails()
    tails.add("a", 10, b"newer")
    tails.add("a", 0, b"much older")
    assert tails.read("a", 10, 100) == b"newer"
    tails.add("a", 5, b"56789newer and more")
    assert tails.read("a", 5, 100) == b"56789newer and more"


def test_only_the_newest_bytes_are_kept() -> None:
    tails = OutputTails()
    tails.add("a", 0, b"x" * KEEP_BYTES)
    tails.add("a", KEEP_BYTES, b"newest")
    assert tails.read("a", 0, 10) == b""
    assert tails.read("a", 6, KEEP_BYTES).endswith(b"newest")
    assert len(tails.read("a", 6, 10**9)) == KEEP_BYTES


def test_only_the_most_recently_heard_are_kept() -> None:
    tails = OutputTails()
    for n in range(KEEP_ATTEMPTS):
        tails.add(str(n), 0, b"x")
    tails.add("0", 1, b"y")
    tails.add("one more", 0, b"x")
    assert tails.read("0", 0, 10) == b"xy"
    assert tails.read("1", 0, 10) == b""


def test_how_far_output_is_known() -> None:
    tails = OutputTails()
    assert tails.known_end("a", 5) == 5
    tails.add("a", 4, b"four")
    assert [tails.known_end("a", end) for end in (3, 4, 7, 8, 9)] == [3, 8, 8, 8, 9]


def test_forgetting_twice_is_fine() -> None:
    tails = OutputTails()
    tails.add("a", 0, b"one")
    tails.forget("a")
    tails.forget("a")
    assert tails.read("a", 0, 10) == b""


@given(st.lists(st.tuples(st.integers(0, 1900), st.integers(0, 100)), max_size=30), st.integers(0, 2000))
def test_whatever_arrives_in_whatever_order_what_is_read_is_true(parts: list[tuple[int, int]], offset: int) -> None:
    tails = OutputTails()
    for start, size in parts:
        tails.add("a", start, TEXT[start : start + size])
        found = tails.read("a", offset, 500)
        assert found == TEXT[offset : offset + len(found)]
