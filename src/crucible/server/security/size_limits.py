"""Limits of the size of requests and of the results they ask for."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Header, Query
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crucible.core.compute.resources import format_memory
from crucible.core.errors import BadInput
from crucible.core.views.frames import MAX_OFFSET

MiB = 1024**2
MAX_JSON = 8 * MiB
MAX_BUNDLE = 512 * MiB
MAX_LOG_SEGMENT = 1 * MiB
MAX_TAIL = 64 * 1024
MAX_ARTIFACT = 1024**4
MAX_CHECKPOINT = 1024**4
MAX_KEY = 200
MOST_DIGITS = 20
MOST_SEGMENTS = 2**31

_VISIBLE = re.compile(r"[\x21-\x7e]+")

Offset = Annotated[int, Query(ge=0, le=MAX_OFFSET)]
LogBytes = Annotated[int, Query(ge=1, le=8 * MiB, description="maximum number of bytes")]
PageSize = Annotated[int, Query(ge=1, le=500)]
EventCount = Annotated[int, Query(ge=1, le=1000)]
Cursor = Annotated[str | None, Query(min_length=1, max_length=200)]
AttemptNumber = Annotated[int | None, Query(ge=1, le=1_000_000)]
Wait = Annotated[float, Query(ge=0, le=30, description="seconds")]


class TooLarge(BadInput):
    code = "too_large"
    http_status = 413


def too_large(thing: str, limit: int) -> TooLarge:
    return TooLarge(
        f"{thing} is larger than {format_memory(limit)}.",
        why="The server accepts no larger request.",
        fix="Leave out files that are not needed; pass large data with --data, not with the code.",
        limit=limit,
    )


async def idempotency_key(
    idempotency_key: Annotated[
        str | None,
        Header(description=f"1 to {MAX_KEY} visible ASCII characters; repeating a key returns the same job"),
    ] = None,
) -> str | None:
    return validate_key(idempotency_key)


def validate_key(key: str | None) -> str | None:
    """Return the Idempotency-Key. Raises BadInput if it is invalid."""
    if key is not None and (len(key) > MAX_KEY or not _VISIBLE.fullmatch(key)):
        raise BadInput(
            "The Idempotency-Key is invalid.",
            why=f"It must be 1 to {MAX_KEY} visible ASCII characters.",
            fix="Send a UUID, generated once per submission.",
            field="Idempotency-Key",
        )
    return key


class BodyLimit:
    """Middleware that refuses a body as soon as more than `limit` bytes have arrived.

    Routes that stream their body (paths matching `streams`) set their own limit with `limited_stream`.
    """

    def __init__(self, app: ASGIApp, *, streams: re.Pattern[str], limit: int = MAX_JSON) -> None:
        self.app = app
        self.streams = streams
        self.limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._streams(scope):
            receive = _limited(receive, self.limit)
        await self.app(scope, receive, send)

    def _streams(self, scope: Scope) -> bool:
        return scope["method"] == "PUT" and self.streams.fullmatch(scope["path"]) is not None


def _limited(receive: Receive, limit: int) -> Receive:
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > limit:
            raise too_large("The request", limit)
        return message

    return counted


async def limited_stream(request: Request, limit: int, thing: str) -> AsyncIterator[bytes]:
    """Yield the body in the pieces it arrives in. Raises TooLarge as soon as it is known to exceed `limit`."""
    check_length(request.headers, limit, thing)
    seen = 0
    async for chunk in request.stream():
        seen += len(chunk)
        if seen > limit:
            raise too_large(thing, limit)
        if chunk:
            yield chunk


async def read_body(request: Request, limit: int, thing: str) -> bytes:
    return b"".join([chunk async for chunk in limited_stream(request, limit, thing)])


def check_length(headers: Headers, limit: int, thing: str) -> None:
    """Raise TooLarge if the announced length exceeds `limit`, before anything is read."""
    length = headers.get("content-length", "")
    # Compare the number of digits first: int() refuses to parse thousands of them.
    if length.isascii() and length.isdigit() and (len(length) > MOST_DIGITS or int(length) > limit):
        raise too_large(thing, limit)
