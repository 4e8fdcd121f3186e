"""Faults between a client and the server: a middleware before the real app."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

Connection = asyncio.BaseTransport
Act = Callable[[ASGIApp, Scope, Receive, Send, Connection], Awaitable[None]]


@dataclass
class _Fault:
    path: str
    left: float
    act: Act


@dataclass
class Faults:
    """Add faults by path (`*` matches anything); each method's fault hits the next `times` requests."""

    version: str | None = None
    """Version in every response, if not the app's own."""
    _faults: list[_Fault] = field(default_factory=list)

    def cut(self, path: str, times: float = 1, after: int | None = None) -> None:
        """Close the connection after a request was served: before its response, or after some bytes of the body."""

        async def act(app: ASGIApp, scope: Scope, receive: Receive, send: Send, connection: Connection) -> None:
            left = after

            async def cut_off(message: Message) -> None:
                nonlocal left
                body = message.get("body", b"")
                if connection.is_closing():
                    return
                if left is None or len(body) > left:
                    if left:
                        await send({**message, "body": body[:left], "more_body": True})
                    connection.close()
                else:
                    left -= len(body)
                    await send(message)

            await app(scope, receive, cut_off)

        self._add(path, times, act)

    def cut_socket(self, path: str = "*/stream", times: float = 1, after: str = "", code: int | None = None) -> None:
        """Close a socket after the first frame that contains `after`: with a close code, or just its connection."""

        async def act(app: ASGIApp, scope: Scope, receive: Receive, send: Send, connection: Connection) -> None:
            cut = False

            async def cut_off(message: Message) -> None:
                nonlocal cut
                if cut:
                    return
                await send(message)
                if after in message.get("text", "") and message["type"] == "websocket.send":
                    cut = True
                    if code is None:
                        connection.close()
                    else:
                        await send({"type": "websocket.close", "code": code})

            await app(scope, receive, cut_off)

        self._add(path, times, act)

    def forget_query(self, path: str, times: float = 1) -> None:
        """Drop the query string."""

        async def act(app: ASGIApp, scope: Scope, receive: Receive, send: Send, connection: Connection) -> None:
            await app({**scope, "query_string": b""}, receive, send)

        self._add(path, times, act)

    def refuse(self, path: str, status: int = 503, times: float = 1, body: bytes = b"not now") -> None:
        """Respond without the app, as a proxy would."""

        refusal = _refusal(status, body)

        async def act(app: ASGIApp, scope: Scope, receive: Receive, send: Send, connection: Connection) -> None:
            await refusal(scope, receive, send)

        self._add(path, times, act)

    def alternate(self, *statuses: int | None, path: str = "*") -> None:
        """Refuse requests with these statuses in turn, cyclically; serve a request if its status is None."""
        turns = itertools.cycle(statuses)

        async def act(app: ASGIApp, scope: Scope, receive: Receive, send: Send, connection: Connection) -> None:
            status = next(turns)
            serve = app if status is None else _refusal(status, b"not now")
            await serve(scope, receive, send)

        self._add(path, float("inf"), act)

    def hang(self, path: str, times: float = 1) -> None:
        """Do not respond until the client disconnects."""

        async def act(app: ASGIApp, scope: Scope, receive: Receive, send: Send, connection: Connection) -> None:
            while (await receive())["type"] not in ("http.disconnect", "websocket.disconnect"):
                pass

        self._add(path, times, act)

    def change(self, path: str, change: Callable[[Any], Any], times: float = float("inf")) -> None:
        """Pass a JSON response through `change`, as from a server of another version."""

        def changed(body: bytes) -> bytes:
            return json.dumps(change(json.loads(body))).encode() if body else body

        self._add(path, times, _replacing(changed))

    def damage(self, path: str, times: float = 1) -> None:
        """Change the last byte of the response."""
        self._add(path, times, _replacing(lambda body: body[:-1] + bytes([body[-1] ^ 1])))

    def garble(self, path: str, times: float = 1) -> None:
        """Respond with invalid JSON."""
        self._add(path, times, _replacing(lambda _body: b"<html>"))

    def _add(self, path: str, times: float, act: Act) -> None:
        self._faults.append(_Fault(path, times, act))

    def lift(self, path: str) -> None:
        """Remove the faults of this path; requests that already hit one are not affected."""
        self._faults = [fault for fault in self._faults if fault.path != path]

    def take(self, path: str) -> Act | None:
        for fault in self._faults:
            if fault.left > 0 and fnmatchcase(path, fault.path):
                fault.left -= 1
                return fault.act
        return None

    async def pass_on(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, connection: Connection) -> None:
        """Serve the request with `app` and the next fault for its path."""
        act = self.take(scope["path"])
        outward = send if self.version is None else self._claiming(send, self.version)
        if act is None:
            await app(scope, receive, outward)
        else:
            await act(app, scope, receive, outward, connection)

    @staticmethod
    def _claiming(send: Send, version: str) -> Send:
        async def outward(message: Message) -> None:
            if message["type"].endswith(".start"):
                kept = [(name, value) for name, value in message["headers"] if name.lower() != b"x-crucible-version"]
                message = {**message, "headers": [*kept, (b"x-crucible-version", version.encode())]}
            await send(message)

        return outward


def _refusal(status: int, body: bytes) -> ASGIApp:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
        await send({"type": f"{kind}.start", "status": status, "headers": []})
        await send({"type": f"{kind}.body", "body": body})

    return refuse


def _replacing(change: Callable[[bytes], bytes]) -> Act:
    async def act(app: ASGIApp, scope: Scope, receive: Receive, send: Send, connection: Connection) -> None:
        start: Message = {}
        body = b""

        async def gather(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = message
            elif message["type"] == "http.response.body":
                body += message.get("body", b"")

        await app(scope, receive, gather)
        content = change(body)
        headers = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
        await send({**start, "headers": [*headers, (b"content-length", str(len(content)).encode())]})
        await send({"type": "http.response.body", "body": content})

    return act
