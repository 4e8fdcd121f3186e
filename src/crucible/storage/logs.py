"""Read logs: immutable segments that together are one stream of bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from crucible.storage.errors import StorageError
from crucible.storage.store import Store, read_either

MAX_LINE = 1024 * 1024


@dataclass(frozen=True)
class Segment:
    """The object `key` holds the bytes from `start` up to, not including, `end` of the stream.

    `other_key` is read if there is no object `key`.
    """

    key: str
    start: int
    end: int
    other_key: str | None = None


@dataclass(frozen=True)
class Line:
    """A line without its newline, which begins at `offset` in the stream.

    `ended` is False for a last line without a newline yet, and for the pieces of an over-long line.
    """

    offset: int
    text: bytes
    ended: bool


class LogStore:
    """Reads streams. Pass the segments sorted by `start` and without gaps."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, segments: Sequence[Segment], start: int, length: int) -> bytes:
        """Return up to `length` bytes of the stream from `start`; fewer if the stored segments end before.

        Raises StorageError if bytes in between are missing.
        """
        return b"".join(self._pieces(segments, start, start + length))

    def lines(self, segments: Sequence[Segment], start: int = 0, max_line: int = MAX_LINE) -> Iterator[Line]:
        """Yield the lines from byte `start` on, joined across segments. A line above `max_line` comes in pieces."""
        offset, rest = start, b""
        for piece in self._pieces(segments, start, segments[-1].end if segments else start):
            *whole, rest = (rest + piece).split(b"\n")
            for text in whole:
                yield from _cut(offset, text, max_line, ended=True)
                offset += len(text) + 1
            while len(rest) > max_line:
                yield Line(offset, rest[:max_line], ended=False)
                offset, rest = offset + max_line, rest[max_line:]
        if rest:
            yield Line(offset, rest, ended=False)

    def blocks(
        self, segments: Sequence[Segment], start: int, size: int, *, tail: bytes = b""
    ) -> Iterator[tuple[int, bytes]]:
        """Yield offsets and blocks of whole lines of about `size` bytes, from byte `start`, where a line begins.

        `tail` follows the last segment. A line longer than `size` comes in pieces; the last one may have no newline.
        """
        offset, held, length = start, list[bytes](), 0
        for piece in chain(self._pieces(segments, start, segments[-1].end if segments else start), (tail,)):
            held.append(piece)
            length += len(piece)
            if length >= size:
                data = b"".join(held)
                end = data.rfind(b"\n") + 1 or len(data)
                yield offset, data[:end]
                offset, held, length = offset + end, [data[end:]], length - end
        if length:
            yield offset, b"".join(held)

    def _pieces(self, segments: Sequence[Segment], start: int, end: int) -> Iterator[bytes]:
        position = start
        for segment in segments:
            if segment.end <= position or segment.start >= end:
                continue
            stop = min(segment.end, end)
            if segment.start > position:
                raise _missing(position, segment.start)
            read = partial(self._store.get_range, start=position - segment.start, length=stop - position)
            data = read_either(read, segment.key, segment.other_key)
            if len(data) != stop - position:
                raise _missing(position + len(data), stop)
            yield data
            position = stop


def _cut(offset: int, text: bytes, limit: int, *, ended: bool) -> Iterator[Line]:
    while len(text) > limit:
        yield Line(offset, text[:limit], ended=False)
        offset, text = offset + limit, text[limit:]
    yield Line(offset, text, ended)


def _missing(start: int, end: int) -> StorageError:
    return StorageError(f"Bytes {start} to {end} of the log are missing in the store.", start=start, end=end)
