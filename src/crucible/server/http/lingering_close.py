"""Read the rest of a body before refusing it: closing with unread bytes resets the connection and loses the answer."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 16 * 1024**2
SECONDS = 5.0
"""How much of a body, and for how long, is taken in to be dropped. Beyond that the connection is cut."""


class LingeringClose:
    """Drops what is left of a body before an error response is sent."""

    def __init__(self, app: ASGIApp, *, most: int = MOST_BYTES, seconds: float = SECONDS) -> None:
        self.app = app
        self._most = most
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = _Body(receive, waits=Headers(scope=scope).get("expect", "").lower() == "100-continue")

        async def patient(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._seconds):
                        await body.drop(self._most)
            await send(message)

        await self.app(scope, body.receive, patient)


class _Body:
    """A request's body as it arrives. A client that `waits` (Expect: 100-continue) sends nothing until it is read."""

    def __init__(self, receive: Receive, *, waits: bool) -> None:
        self._receive = receive
        self._coming = not waits

    async def receive(self) -> Message:
        message = await self._receive()
        self._coming = bool(message.get("more_body", False))
        return message

    async def drop(self, most: int) -> None:
        while self._coming and most > 0:
            most -= len((await self.receive()).get("body", b""))
