"""Read the rest of a body before refusing it: closing with unread bytes resets the connection and loses the answer."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 16 * 1024**2
SECONDS = 5.0
"""Limits on reading a body only to drop it, in bytes and seconds. Beyond them the connection is cut."""


class LingeringClose:
    """Middleware that reads and drops the rest of a body before it sends an error response."""

    def __init__(self, app: ASGIApp, *, most: int = MOST_BYTES, seconds: float = SECONDS) -> None:
        self.app = app
        self._most = most
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = _Body(receive, waits=Headers(scope=scope).get("expect", "").lower() == "100-continue")

        async def send_after_body(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._seconds):
                        await body.drop(self._most)
            await send(message)

        await self.app(scope, body.receive, send_after_body)


class _Body:
    """A request's body. A client that `waits` (Expect: 100-continue) sends nothing until the body is read."""

    def __init__(self, receive: Receive, *, waits: bool) -> None:
        self._receive = receive
        self._more = not waits

    async def receive(self) -> Message:
        message = await self._receive()
        self._more = bool(message.get("more_body", False))
        return message

    async def drop(self, most: int) -> None:
        while self._more and most > 0:
            most -= len((await self.receive()).get("body", b""))
