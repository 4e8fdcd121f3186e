"""Whoever is refused while he still sends gets to know why."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from crucible.server.http.lingering_close import LingeringClose


class Client:
    """Sends `pieces` of a kilobyte each, and remembers how many were taken before the answer began."""

    def __init__(self, pieces: int, **headers: str) -> None:
        self.taken = 0
        self.taken_before: int | None = None
        self._pieces = pieces
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def ask(self, app: Any) -> int | None:
        await app({"type": "http", "headers": self._headers}, self._receive, self._send)
        return self.taken_before

    async def _receive(self) -> Message:
        if self.taken >= self._pieces:
            await asyncio.Event().wait()  # nothing more comes: whoever reads on hangs
        self.taken += 1
        return {"type": "http.request", "body": b"x" * 1024, "more_body": self.taken < self._pieces}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.taken_before = self.taken


def answering(status: int, *, reads: int = 0) -> Any:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for _ in range(reads):
            await receive()
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    return app


async def test_the_rest_of_a_refused_body_is_taken_in() -> None:
    assert await Client(10).ask(LingeringClose(answering(413))) == 10
    assert await Client(10).ask(LingeringClose(answering(401, reads=3))) == 10


async def test_a_body_that_was_read_is_not_waited_for() -> None:
    assert await Client(3).ask(LingeringClose(answering(422, reads=3))) == 3


async def test_who_is_taken_goes_on_as_he_likes() -> None:
    assert await Client(10).ask(LingeringClose(answering(200, reads=1))) == 1


async def test_no_more_is_taken_than_the_bound() -> None:
    assert await Client(10).ask(LingeringClose(answering(413), most=4096)) == 4


async def test_nobody_is_waited_for_longer_than_a_moment() -> None:
    class Stuck(Client):
        async def _receive(self) -> Message:
            await asyncio.Event().wait()
            raise AssertionError

    assert await Stuck(1).ask(LingeringClose(answering(413), seconds=0.01)) == 0


@pytest.mark.parametrize("said", ["100-continue", "100-Continue"])
async def test_who_waits_to_be_told_to_go_on_is_not_told(said: str) -> None:
    assert await Client(10, expect=said).ask(LingeringClose(answering(413))) == 0
