"""The newest output of running attempts, in memory only; what counts is in the store."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

KEEP_BYTES = 256 * 1024
KEEP_ATTEMPTS = 256


@dataclass(frozen=True)
class Tail:
    start: int
    data: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class OutputTails:
    """Live tails of the most recently heard attempts; bounded in size and number."""

    def __init__(self) -> None:
        self._tails: OrderedDict[str, Tail] = OrderedDict()

    def add(self, attempt: str, start: int, data: bytes) -> None:
        """Add output: append what follows, start over after a gap, ignore what is known."""
        known = self._tails.pop(attempt, None)
        self._tails[attempt] = _trim(_join(known, start, data))
        while len(self._tails) > KEEP_ATTEMPTS:
            self._tails.popitem(last=False)

    def read(self, attempt: str, offset: int, limit: int) -> bytes:
        """Return what is known from `offset` on; empty if that is not here."""
        tail = self._tails.get(attempt)
        if tail is None or not tail.start <= offset < tail.end:
            return b""
        return tail.data[offset - tail.start : offset - tail.start + limit]

    def known_end(self, attempt: str, end: int) -> int:
        """Return how far output is known, given that `end` bytes of it are stored."""
        tail = self._tails.get(attempt)
        return tail.end if tail is not None and tail.start <= end < tail.end else end

    def forget(self, attempt: str) -> None:
        self._tails.pop(attempt, None)


def _join(known: Tail | None, start: int, data: bytes) -> Tail:
    if known is None or start > known.end:
        return Tail(start, data)
    if start < known.start:
        return known if start + len(data) <= known.end else Tail(start, data)
    overlap = known.end - start
    return Tail(known.start, known.data + data[overlap:])


def _trim(tail: Tail) -> Tail:
    extra = len(tail.data) - KEEP_BYTES
    return tail if extra <= 0 else Tail(tail.start + extra, tail.data[extra:])
