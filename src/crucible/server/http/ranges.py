"""Range requests (RFC 9110, section 14) for one stored file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from crucible.core.errors import BadInput

_RANGE = re.compile(r"bytes=\s*(\d*)-(\d*)\s*", re.IGNORECASE | re.ASCII)
_MAX_DIGITS = 19


class RangeNotThere(BadInput):
    """The requested range begins after the end of the file."""

    code = "range_not_there"
    http_status = 416


@dataclass(frozen=True)
class ByteRange:
    """The bytes `start` up to, not including, `end` of a file of `size` bytes."""

    start: int
    end: int
    size: int

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def content_range(self) -> str:
        return f"bytes {self.start}-{self.end - 1}/{self.size}"


def parse_range(header: str | None, size: int) -> ByteRange | None:
    """Return the range that a Range header asks for, or None to send the whole file. Raises RangeNotThere.

    A header that is invalid or asks for several ranges is ignored, as the RFC allows.
    """
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None or max(map(len, match.groups())) > _MAX_DIGITS:
        return None
    first, last = match.groups()
    if not first:
        return _suffix(last, size)
    start, end = int(first), int(last) + 1 if last else size
    if end <= start and last:
        return None
    if start >= size:
        raise _not_there(size)
    return ByteRange(start, min(end, size), size)


def range_applies(if_range: str | None, etag: str) -> bool:
    """Return whether a Range still applies: a resumed download must not join two different files."""
    return if_range is None or if_range.strip() == etag


def is_unchanged(if_none_match: str | None, etag: str) -> bool:
    """Return whether the client has this version of the file already."""
    tags = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    return etag in tags or "*" in tags


def _suffix(last: str, size: int) -> ByteRange | None:
    if not last:
        return None
    if int(last) == 0 or size == 0:
        raise _not_there(size)
    return ByteRange(max(0, size - int(last)), size, size)


def _not_there(size: int) -> RangeNotThere:
    return RangeNotThere(
        f"The range is outside of the file, which has {size} bytes.",
        fix="Request bytes below that size. A download that has all of them is complete.",
        size=size,
    )
