"""A WebSocket client that speaks to an application directly, in the same event loop."""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import Any

from starlette.types import ASGIApp, Message

DEADLINE = 5.0


class SocketClient:
    """One socket. `room` is how many frames fit on the way before the application has to wait."""

    def __init__(
        self,
        app: ASGIApp,
        path: str,
        headers: dict[str, str] | None = None,
        subprotocols: tuple[str, ...] = (),
        room: int = 0,
    ) -> None:
        path, _, query = path.partition("?")
        sent = {"host": "127.0.0.1", **(headers or {})}
        self.scope: dict[str, Any] = {
            "type": "websocket",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "ws",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
            "subprotocols": list(subprotocols),
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 5000),
            "state": {},
            "extensions": {"websocket.http.response": {}},
        }
        self._app = app
        self._inward: asyncio.Queue[Message] = asyncio.Queue()
        self._outward: asyncio.Queue[Message] = asyncio.Queue(room)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> SocketClient:
        self._inward.put_nowait({"type": "websocket.connect"})
        self._task = asyncio.create_task(self._app(self.scope, self._inward.get, self._outward.put))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task
        self.leave()
        while not self._outward.empty():
            self._outward.get_nowait()
        await asyncio.wait_for(self._task, DEADLINE)

    async def message(self) -> Message:
        return await asyncio.wait_for(self._outward.get(), DEADLINE)

    async def accepted(self) -> Message:
        message = await self.message()
        assert message["type"] == "websocket.accept", message
        return message

    async def frame(self) -> dict[str, Any]:
        message = await self.message()
        assert message["type"] == "websocket.send", message
        found: dict[str, Any] = json.loads(message["text"])
        return found

    async def frames_until_close(self) -> tuple[list[dict[str, Any]], int]:
        """Every frame to the end, and the code the socket was closed with."""
        found: list[dict[str, Any]] = []
        while (message := await self.message())["type"] == "websocket.send":
            found.append(json.loads(message["text"]))
        return found, message["code"]

    async def refusal(self) -> tuple[int, dict[str, Any]]:
        """The status and the problem of a socket that was not accepted."""
        start, body = await self.message(), await self.message()
        assert start["type"] == "websocket.http.response.start", start
        return start["status"], json.loads(body["body"])

    async def status(self) -> int:
        """101 for a socket that was accepted, else the status of the refusal."""
        first = await self.message()
        return 101 if first["type"] == "websocket.accept" else int(first["status"])

    async def ended(self) -> None:
        """Returns once the application is done with this socket."""
        assert self._task
        await asyncio.shield(self._task)

    def send(self, frame: bytes) -> None:
        self._inward.put_nowait({"type": "websocket.receive", "bytes": frame})

    async def received(self) -> bytes:
        """The next binary message."""
        message = await self.message()
        assert message["type"] == "websocket.send", message
        return bytes(message["bytes"])

    def say(self, text: str) -> None:
        self._inward.put_nowait({"type": "websocket.receive", "text": text})

    def leave(self) -> None:
        self._inward.put_nowait({"type": "websocket.disconnect", "code": 1001})
