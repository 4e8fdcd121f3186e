"""Ranged downloads: what an HTTP Range header asks for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from crucible.storage.errors import BadRange

_ONE_RANGE = re.compile(r"([0-9]{0,19})-([0-9]{0,19})")


@dataclass(frozen=True)
class ByteRange:
    """The bytes from `start` up to, not including, `end` of an object of `size` bytes; never empty."""

    start: int
    end: int
    size: int

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def content_range(self) -> str:
        """The value of the Content-Range header of the answer (206)."""
        return f"bytes {self.start}-{self.end - 1}/{self.size}"


def parse_range(header: str | None, size: int) -> ByteRange | None:
    """What `header` asks of an object of `size` bytes; None: send all of it.

    Understands `bytes=a-b`, `bytes=a-` and `bytes=-n`. No header, another unit or several ranges: all of it,
    as HTTP allows. A malformed range, or one beyond the object, raises BadRange.
    """
    unit, equals, text = (header or "").strip().partition("=")
    if not equals or unit.strip().lower() != "bytes" or "," in text:
        return None
    found = _ONE_RANGE.fullmatch(text.strip())
    if not found or text.strip() == "-":
        raise _bad(header, size, "It is not of the form bytes=a-b, bytes=a- or bytes=-n.")
    start, end = _bounds(found.group(1), found.group(2), size)
    if start >= end:
        raise _bad(header, size, f"The object has {size} bytes.")
    return ByteRange(start, end, size)


def _bounds(first: str, last: str, size: int) -> tuple[int, int]:
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(int(last) + 1, size) if last else size


def _bad(header: str | None, size: int, why: str) -> BadRange:
    return BadRange(f"The range {header!r} cannot be served.", why=why, size=size)
