"""Frames of sessions: what one side writes the other reads, and nothing else gets through."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.wire.http import sessions as s

words = st.lists(st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=20), max_size=8).map(tuple)
sizes = st.builds(s.Size, st.integers(1, s.MAX_SIDE), st.integers(1, s.MAX_SIDE))
openings = st.one_of(
    st.builds(s.Command, words, st.none() | sizes, st.sampled_from(["", "xterm-256color"])),
    st.builds(s.Connection, st.integers(1, 65535)),
    st.just(s.Ports()),
)
problems = st.builds(s.Problem, st.text(max_size=9), st.integers(400, 599), st.text(), st.text(), st.text())
overs = st.builds(
    s.Over,
    st.none() | st.integers(0, 255),
    st.none() | st.integers(1, 64),
    st.none() | problems,
    st.booleans(),
    st.lists(st.integers(1, 65535), max_size=5).map(tuple),
)


@given(openings)
def test_an_opening_arrives_as_it_was_sent(wanted: s.Opening) -> None:
    frame = s.open_frame(wanted)
    assert s.frame_kind(frame, s.FROM_CLIENT) is s.FrameKind.OPEN
    assert s.read_opening(frame) == wanted


def test_words_that_are_no_utf8_arrive_too() -> None:
    word = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert s.read_opening(s.open_frame(s.Command((word,)))) == s.Command((word,))


@given(overs)
def test_an_end_arrives_as_it_was_told(how: s.Over) -> None:
    assert s.read_over(s.over_frame(how)) == how


@given(sizes, st.integers(0, s.MAX_CREDIT))
def test_sizes_and_credit(size: s.Size, count: int) -> None:
    assert s.read_size(s.resize_frame(size)) == size
    assert s.read_credit(s.credit_frame(count)) == count


@given(st.binary(max_size=200))
def test_whatever_comes_is_read_or_refused(raw: bytes) -> None:
    """Nothing but BadFrame comes out of hostile bytes."""
    for allowed in (s.FROM_CLIENT, s.FROM_AGENT):
        try:
            kind = s.frame_kind(raw, allowed)
        except s.BadFrame:
            continue
        reader = {s.FrameKind.OPEN: s.read_opening, s.FrameKind.OVER: s.read_over, s.FrameKind.RESIZE: s.read_size}.get(
            kind
        )
        try:
            (reader or s.read_credit)(raw)
        except s.BadFrame:
            continue


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(["kind", "words", "terminal", "term", "port", "rows", "columns", "code", "problem", "ports"])
kinds = st.fixed_dictionaries({"kind": st.sampled_from(["command", "connection", "ports"])})


@given(st.one_of(json_values, st.builds(dict.__or__, st.dictionaries(names, json_values), kinds)))
def test_whatever_json_comes_is_read_or_refused(doc: object) -> None:
    for reader in (s.read_opening, s.read_over, s.read_size):
        try:
            reader(b"?" + json.dumps(doc).encode())
        except s.BadFrame:
            continue


@pytest.mark.parametrize(
    "doc",
    [
        {"kind": "command", "words": ["a"] * (s.MAX_WORDS + 1)},
        {"kind": "command", "words": ["a" * (s.MAX_COMMAND + 1)]},
        {"kind": "command", "words": ["a\0b"]},
        {"kind": "command", "words": [""]},
        {"kind": "command", "words": "ls"},
        {"kind": "command", "words": [1]},
        {"kind": "command", "terminal": {"rows": 0, "columns": 80}},
        {"kind": "command", "terminal": {"rows": True, "columns": 80}},
        {"kind": "command", "term": "x" * 65},
        {"kind": "command", "term": "a\nb"},
        {"kind": "connection"},
        {"kind": "connection", "port": 0},
        {"kind": "connection", "port": 65536},
        {"kind": "connection", "port": "8888"},
        {"kind": "shutdown"},
        {},
        [],
    ],
)
def test_openings_that_are_none(doc: object) -> None:
    with pytest.raises(s.BadFrame):
        s.read_opening(b"O" + json.dumps(doc).encode())


def test_an_opening_with_something_new_is_understood() -> None:
    doc = {"kind": "connection", "port": 8888, "colour": "red"}
    assert s.read_opening(b"O" + json.dumps(doc).encode()) == s.Connection(8888)


@pytest.mark.parametrize("frame", [b"", b"?", b"O" + b"x" * s.MAX_FRAME])
def test_frames_that_are_none(frame: bytes) -> None:
    with pytest.raises(s.BadFrame):
        s.frame_kind(frame, s.FROM_CLIENT)


@pytest.mark.parametrize("kind", sorted(s.FROM_AGENT - s.FROM_CLIENT, key=lambda kind: kind.name))
def test_a_client_does_not_speak_for_the_agent(kind: s.FrameKind) -> None:
    with pytest.raises(s.BadFrame, match=kind.name):
        s.frame_kind(kind.value, s.FROM_CLIENT)


def test_an_exit_code_is_that_of_a_shell() -> None:
    assert [s.Over(code=7).exit_code, s.Over(signal=15).exit_code, s.Over().exit_code] == [7, 143, 1]


def test_a_window_closes_and_opens() -> None:
    window = s.CreditWindow(10)
    window.receive(8)
    with pytest.raises(s.BadFrame, match="credit"):
        window.receive(3)
    window.grant(8)
    with pytest.raises(s.BadFrame, match="not sent"):
        window.grant(1)
    window.spend(12)
    assert window.room == -2
