"""As much of HTTP/1.1 as a proxy needs: where a message begins and where it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

PIECE = 64 * 1024
LARGEST_HEAD = 1024 * 1024
_END = b"\r\n\r\n"


@dataclass(frozen=True)
class Head:
    """`raw`: first line and headers as they came, with the empty line after them."""

    raw: bytes
    words: tuple[str, ...]
    headers: Mapping[str, str]

    @property
    def request(self) -> str:
        """`METHOD /target` of a request."""
        return " ".join(self.words[:2])

    @property
    def status(self) -> int:
        """That of an answer."""
        return int(self.words[1])

    @property
    def chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def last(self) -> bool:
        """Whether whoever sent this ends the connection after it."""
        return "close" in self.headers.get("connection", "").lower() or "HTTP/1.0" in self.words

    @property
    def length(self) -> int | None:
        said = self.headers.get("content-length")
        return None if said is None else int(said)

    @property
    def least(self) -> int:
        """Bytes that the body has at least, on the wire."""
        return len(b"0" + _END) if self.chunked else self.length or 0

    def bodiless(self, request: Head) -> bool:
        """Whether an answer to this request has no body, whatever its headers say."""
        return request.words[0] == "HEAD" or self.status in (204, 304) or self.status < 200


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """None when the stream ended instead."""
    try:
        raw = await reader.readuntil(_END)
    except asyncio.IncompleteReadError:
        return None
    first, *lines = raw.decode("latin-1").rstrip().split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return Head(raw, tuple(first.split(" ", 2)), {name.strip().lower(): value.strip() for name, _, value in pairs})


def request_body(reader: asyncio.StreamReader, head: Head) -> AsyncIterator[bytes]:
    return _chunks(reader) if head.chunked else _exactly(reader, head.length or 0)


def answer_body(reader: asyncio.StreamReader, head: Head, request: Head) -> AsyncIterator[bytes]:
    """Pieces as they are on the wire. Raises EOFError when the stream ends before the body does."""
    if head.bodiless(request):
        return _exactly(reader, 0)
    if head.chunked:
        return _chunks(reader)
    return _rest(reader) if head.length is None else _exactly(reader, head.length)


async def _exactly(reader: asyncio.StreamReader, left: int) -> AsyncIterator[bytes]:
    while left:
        piece = await reader.read(min(left, PIECE))
        if not piece:
            raise EOFError
        left -= len(piece)
        yield piece


async def _rest(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while piece := await reader.read(PIECE):
        yield piece


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int((line := await _line(reader)).split(b";")[0], 16):
        yield line
        async for piece in _exactly(reader, size + 2):
            yield piece
    yield line
    while line != b"\r\n":  # what may follow the last chunk
        line = await _line(reader)
        yield line


async def _line(reader: asyncio.StreamReader) -> bytes:
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return line
