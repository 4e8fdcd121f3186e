"""Test that every split of the same bytes gives the same lines, in bounded memory."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from crucible.agent.output.lines import LineCutter, OutputLine, RedrawThinner


def cut(*chunks: bytes, limit: int = 65536) -> list[OutputLine]:
    cutter = LineCutter(limit)
    return [line for chunk in chunks for line in cutter.feed(chunk)] + cutter.finish()


def test_plain_lines_and_blank_lines() -> None:
    assert cut(b"one\n\ntwo\n") == [OutputLine(b"one"), OutputLine(b""), OutputLine(b"two")]


def test_partial_last_line_comes_out_at_the_end_only() -> None:
    cutter = LineCutter()
    assert cutter.feed(b"one\ntw") == [OutputLine(b"one")]
    assert cutter.feed(b"o") == []
    assert cutter.finish() == [OutputLine(b"two")]
    assert cutter.finish() == []


def test_crlf_is_one_end_even_when_split_between_chunks() -> None:
    assert cut(b"one\r", b"\ntwo\r\n") == [OutputLine(b"one"), OutputLine(b"two")]
    assert cut(b"one\r", b"", b"\r", b"\ntwo") == [OutputLine(b"one"), OutputLine(b"two")]


def test_redraws_are_transient_and_the_last_one_before_a_newline_is_not() -> None:
    assert cut(b"\r10%\r20%\r30%\nnext\n") == [
        OutputLine(b"10%", True),
        OutputLine(b"20%", True),
        OutputLine(b"30%"),
        OutputLine(b"next"),
    ]


def test_redraw_pending_at_the_end_is_kept_as_a_line() -> None:
    assert cut(b"10%\r20%\r") == [OutputLine(b"10%", True), OutputLine(b"20%")]


def test_blank_redraws_and_keras_backspaces_are_dropped() -> None:
    assert cut(b"bar\b\b\b\r   \r\rdone\n") == [OutputLine(b"bar", True), OutputLine(b"done")]


def test_bytes_are_kept_as_they_came() -> None:
    line = cut(b"a\xff\x00b\n")[0]
    assert line.data == b"a\xff\x00b"
    assert line.text == "a\ufffd\x00b"


def test_long_line_is_cut_and_says_exactly_how_much_is_missing() -> None:
    assert cut(b"x" * 25 + b"\nok\n", limit=10) == [
        OutputLine(b"x" * 10 + " …[line cut: 15 bytes left out]".encode()),
        OutputLine(b"ok"),
    ]
    assert cut(b"x" * 10 + b"\n", limit=10) == [OutputLine(b"x" * 10)]


def test_long_redraw_and_long_partial_line_are_cut_too() -> None:
    marker = " …[line cut: 2 bytes left out]".encode()
    assert cut(b"abcd\refgh", limit=2) == [OutputLine(b"ab" + marker, True), OutputLine(b"ef" + marker)]


def test_two_hundred_megabytes_on_one_line_cost_little_memory() -> None:
    cutter, chunk = LineCutter(), b"x" * 65536
    tracemalloc.start()
    try:
        for _ in range(200 * 16):
            assert cutter.feed(chunk) == []
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    (line,) = cutter.feed(b"\n")
    assert peak < 400_000
    assert line.data.endswith(f" …[line cut: {200 * 2**20 - 65536} bytes left out]".encode())


@given(st.lists(st.sampled_from([b"a", b"bc", b"\r", b"\n", b"\r\n", b" ", b"\xff"]), max_size=40), st.data())
def test_lines_do_not_depend_on_where_chunks_are_split(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    places = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    chunks = [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]
    assert cut(*chunks, limit=5) == cut(whole, limit=5)


def test_thinner_keeps_the_last_redraw_before_a_flush() -> None:
    thinner = RedrawThinner()
    assert thinner.thin([OutputLine(b"10%", True), OutputLine(b"20%", True)]) == []
    assert thinner.flush() == [OutputLine(b"20%", True)]
    assert thinner.flush() == []


def test_thinner_keeps_the_last_redraw_before_a_full_line() -> None:
    """Whether that line replaces the bar's last state or says something else cannot be known."""
    thinner = RedrawThinner()
    lines = [OutputLine(b"99%", True), OutputLine(b"100%", True), OutputLine(b"done"), OutputLine(b"after")]
    assert thinner.thin(lines) == lines[1:]
    assert thinner.flush() == []
