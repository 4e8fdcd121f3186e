"""Find the matching lines of a long text, block by block, in time linear in the text.

Expressions are RE2's: without backtracking, so no expression is slow, and it releases the GIL. What it lacks
(look-around, back-references) is rejected with its own message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import re2

from crucible.core.errors import BadInput

LONGEST_SHOWN = 2000
"""Bytes of a line that are shown; of a longer line those around the match."""

NEAR = 2 * LONGEST_SHOWN
"""Bytes that are searched for each line of context."""

_MEMORY = 16 * 1024 * 1024
_WHOLE_TEXT = re.compile(r"(?<!\\)(?:\\\\)*\\[AzZ]|\(\?[a-zA-Z]*-[a-zA-Z]*m")


@dataclass(frozen=True)
class TextBlock:
    """Whole lines of an output, from byte `offset` on; the first of them is line `line`.

    The last one may be without its newline: where the output ends for now, or where a line is too long.
    """

    offset: int
    line: int
    data: bytes

    @property
    def newlines(self) -> int:
        return self.data.count(b"\n")


@dataclass(frozen=True)
class LineMatch:
    """A line that matches. `offset` is where it begins; `column` the byte of it where the match does.

    `cut`: the line is longer than what is shown of it.
    """

    line: int
    offset: int
    column: int
    text: str
    cut: bool = False
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pattern:
    """Text to search for, literally or, with `regex`, as an expression. Raises BadInput for an invalid one."""

    text: str
    regex: bool = False
    case: bool = True
    _found: re2._Regexp = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_found", _compile(self.text, regex=self.regex, case=self.case))

    def search(self, data: bytes, start: int) -> int | None:
        """Return the start of the first match from `start`, a line's beginning. No match spans lines."""
        match = self._found.search(data, start)
        return None if match is None else int(match.start())


def _compile(text: str, *, regex: bool, case: bool) -> re2._Regexp:
    options = re2.Options()
    options.literal, options.case_sensitive = not regex, case
    options.never_nl = options.never_capture = True
    options.log_errors, options.max_mem = False, _MEMORY
    if regex and _WHOLE_TEXT.search(text):
        raise _bad_pattern(text, "Each line is searched by itself, so there is no beginning or end of the whole text")
    try:
        return re2.compile((b"(?m)" if regex else b"") + text.encode(), options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise _bad_pattern(text, why) from error


def _bad_pattern(text: str, why: str) -> BadInput:
    return BadInput(
        f"{text[:100]!r} is not a valid expression.",
        why=f"{why}.",
        fix="Write it in RE2's syntax (no look-around, no back-references; ^ and $ for a line's ends), "
        "or omit `regex` to search for the text literally.",
        field="q",
    )


def search(
    blocks: Iterable[TextBlock], pattern: Pattern, *, most: int, context: int = 0, earlier: Sequence[bytes] = ()
) -> Iterator[tuple[TextBlock, list[LineMatch]]]:
    """Yield each block with its first `most` matching lines and `context` lines around each.

    `earlier` are the lines before the first block.
    """
    held: tuple[TextBlock, list[LineMatch]] | None = None
    for block in blocks:
        if held is not None:
            yield held[0], _add_following(held[1], block, context)
        held = block, list(islice(_find_matches(block, pattern, context, list(earlier)), most))
        earlier = [*earlier, *lines_of(block.data, -context)][-context:] if context else []
    if held is not None:
        yield held


def _add_following(hits: list[LineMatch], block: TextBlock, context: int) -> list[LineMatch]:
    """Add following lines from the next block to matches at a block's end."""
    if not context or not hits:
        return hits
    following = tuple(map(_decode_line, lines_of(block.data, context)))
    return [replace(hit, after=(*hit.after, *following)[:context]) for hit in hits]


def _find_matches(block: TextBlock, pattern: Pattern, context: int, earlier: list[bytes]) -> Iterator[LineMatch]:
    data, start, line, counted = block.data, 0, block.line, 0
    while start < len(data):
        found = pattern.search(data, start)
        if found is None or (found == len(data) and data.endswith(b"\n")):
            return
        first, last = _line_bounds(data, found)
        line, counted = line + data.count(b"\n", counted, first), first
        hit = _make_match(data[first:last], line, block.offset + first, found - first)
        if context:
            before = [*earlier, *lines_of(data[max(first - context * NEAR, 0) : first], -context)][-context:]
            after = lines_of(data[last + 1 : last + 1 + context * NEAR], context)
            hit = replace(hit, before=tuple(map(_decode_line, before)), after=tuple(map(_decode_line, after)))
        yield hit
        start = last + 1


def _line_bounds(data: bytes, at: int) -> tuple[int, int]:
    """Return the begin and end of the line that holds byte `at`."""
    end = data.find(b"\n", at)
    return data.rfind(b"\n", 0, at) + 1, len(data) if end < 0 else end


def _make_match(text: bytes, line: int, offset: int, column: int) -> LineMatch:
    if len(text) <= LONGEST_SHOWN:
        return LineMatch(line, offset, column, text.decode(errors="replace"))
    start = min(max(column - LONGEST_SHOWN // 4, 0), len(text) - LONGEST_SHOWN)
    return LineMatch(line, offset, column, text[start : start + LONGEST_SHOWN].decode(errors="replace"), cut=True)


def lines_of(data: bytes, count: int) -> list[bytes]:
    """Return the first `count` lines of a text, or with a negative count the last."""
    if not data or not count:
        return []
    if count < 0:
        return data.removesuffix(b"\n").rsplit(b"\n", -count)[count:]
    found = data.split(b"\n", count)
    return found[:count] if found[-1] else found[:-1][:count]


def _decode_line(line: bytes) -> str:
    return line[:LONGEST_SHOWN].decode(errors="replace")
