"""Content to store, hashed and counted while it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from crucible.storage.errors import HashMismatch
from crucible.storage.store import CHUNK, Content


class Hashed:
    """Content in pieces, which can be read once. Raises HashMismatch at the end if it has another hash than expected.

    `size` and `sha256` are set when all pieces have been read.
    """

    def __init__(self, key: str, data: Content, expected: str | None) -> None:
        if isinstance(data, Path) and not data.is_file():
            raise FileNotFoundError(f"{data} is not a file")
        self._key = key
        self._data = data
        self._expected = expected
        self.size = 0
        self.sha256 = ""

    def __iter__(self) -> Iterator[bytes]:
        digest = hashlib.sha256()
        for piece in _pieces(self._data):
            digest.update(piece)
            self.size += len(piece)
            yield piece
        self.sha256 = digest.hexdigest()
        if self._expected not in (None, self.sha256):
            raise HashMismatch(
                f"The content for {self._key!r} does not have the expected hash.",
                why=f"Its SHA-256 is {self.sha256}, not {self._expected}.",
                fix="Send it again.",
            )


def size_ahead(data: Content) -> int | None:
    """Return the size in bytes, or None if it is unknown before the content is read."""
    if isinstance(data, Path):
        return data.stat().st_size
    return len(data) if isinstance(data, bytes) else None


def _pieces(data: Content) -> Iterator[bytes]:
    if isinstance(data, bytes):
        yield data
    elif isinstance(data, Path):
        with data.open("rb") as file:
            while piece := file.read(CHUNK):
                yield piece
    else:
        yield from data
