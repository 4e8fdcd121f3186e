from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.control.telemetry.grep import LONGEST_SHOWN, LineMatch, Pattern, TextBlock, lines_of, search
from crucible.core.errors import BadInput


def blocks(*texts: bytes) -> list[TextBlock]:
    found, offset, line = [], 0, 1
    for text in texts:
        found.append(TextBlock(offset, line, text))
        offset, line = offset + len(text), line + text.count(b"\n")
    return found


def hits(pattern: Pattern, *texts: bytes, context: int = 0, most: int = 1000) -> list[LineMatch]:
    return [hit for _, found in search(blocks(*texts), pattern, most=most, context=context) for hit in found]


def lines(pattern: Pattern, *texts: bytes) -> list[int]:
    return [hit.line for hit in hits(pattern, *texts)]


def test_a_hit_knows_its_line_and_its_bytes() -> None:
    assert hits(Pattern("two"), b"one\na two\n", b"three two two\n") == [
        LineMatch(line=2, offset=4, column=2, text="a two"),
        LineMatch(line=3, offset=10, column=6, text="three two two"),
    ]


def test_a_text_is_looked_for_as_it_stands() -> None:
    text = b"a.c\nabc\nA.C\n(a.c\n"
    assert lines(Pattern("a.c"), text) == [1, 4]
    assert lines(Pattern("a.c", case=False), text) == [1, 3, 4]
    assert lines(Pattern("(a"), text) == [4]
    assert lines(Pattern("größe", case=False), "x\nGRÖSSE GRÖßE\n".encode()) == [2]


def test_an_expression_sees_one_line_at_a_time() -> None:
    text = b"one two\nthree\n\nfour\n"
    assert lines(Pattern("^t", regex=True), text) == [2]
    assert lines(Pattern("o$", regex=True), text) == [1]
    assert lines(Pattern("^$", regex=True), text) == [3]
    assert lines(Pattern(r"two\s+three", regex=True), text) == []
    assert lines(Pattern("(?s)one.*four", regex=True), text) == []
    assert lines(Pattern("[^q]*", regex=True), text) == [1, 2, 3, 4]
    assert lines(Pattern("x*", regex=True), text) == [1, 2, 3, 4]


def test_a_last_line_without_its_newline_counts() -> None:
    assert lines(Pattern("$", regex=True), b"a\nb") == [1, 2]
    assert lines(Pattern("b"), b"a\nb") == [2]


@pytest.mark.parametrize(
    "text", ["(", "a{1,9999}", r"(a)\1", "(?=a)", "(?<!a)b", "*", "[z-a]", r"\Aone", r"one\z", "(?-m)^a", "(?i-m:^a)"]
)
def test_what_is_no_expression_is_refused_with_the_syntax(text: str) -> None:
    with pytest.raises(BadInput, match="is not a valid expression") as raised:
        Pattern(text, regex=True)
    assert raised.value.why
    assert "RE2" in raised.value.fix
    assert Pattern(text)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ["(a+)+$", "(a|aa)+$", "(.*a){12}b", "(a*)*b", "((a?){30}a{30})c"])
def test_no_expression_runs_away(text: str) -> None:
    """Each of these keeps an engine that goes back busy for longer than the world has been there."""
    assert hits(Pattern(text, regex=True), b"a" * 100_000 + b"!\n") == []


def test_context_comes_from_the_blocks_around_too() -> None:
    [hit] = hits(Pattern("hit"), b"1\n2\n", b"3\n", b"hit\n", b"5\n", b"6\n7\n", context=2)
    assert (hit.before, hit.after) == (("2", "3"), ("5",))
    [hit] = hits(Pattern("hit"), b"1\n2\nhit\n4\n5\n6\n", context=2)
    assert (hit.before, hit.after) == (("1", "2"), ("4", "5"))
    [hit] = hits(Pattern("hit"), b"hit\n", context=3)
    assert (hit.before, hit.after) == ((), ())


def test_of_a_long_line_the_part_around_the_match_is_shown() -> None:
    text = b"x" * 5000 + b"hit" + b"y" * 5000 + b"\n"
    [hit] = hits(Pattern("hit"), text)
    assert (hit.column, hit.cut, len(hit.text)) == (5000, True, LONGEST_SHOWN)
    assert "hit" in hit.text


def test_bytes_that_are_no_text_do_no_harm() -> None:
    [hit] = hits(Pattern("ok"), b"\xff\xfe ok \x00\n")
    assert hit.text == "�� ok \x00"


def test_no_more_are_found_than_are_asked_for() -> None:
    assert len(hits(Pattern("a"), b"a\n" * 100, most=3)) == 3


def test_the_ends_of_a_text() -> None:
    assert lines_of(b"", 3) == lines_of(b"", -3) == lines_of(b"a\n", 0) == []
    assert lines_of(b"a\nb\nc\n", 2) == [b"a", b"b"]
    assert lines_of(b"a\nb\nc\n", 9) == [b"a", b"b", b"c"]
    assert lines_of(b"a\nb\nc\n", -2) == [b"b", b"c"]
    assert lines_of(b"a\n\n", -2) == [b"a", b""]


@given(st.lists(st.text("ab\n", max_size=12), max_size=6), st.sampled_from(["a", "ab", "b"]))
def test_what_is_found_is_what_a_simple_search_finds(parts: list[str], sought: str) -> None:
    texts = [part.encode() + b"\n" for part in parts]
    whole = b"".join(texts).decode().split("\n")[:-1]
    assert lines(Pattern(sought), *texts) == [n for n, line in enumerate(whole, 1) if sought in line]
