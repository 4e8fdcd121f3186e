"""Addresses that no route has to look at: a NUL character names nothing, and not every database takes one."""

from __future__ import annotations

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from crucible.core.errors import BadInput
from crucible.server.http.problems import problem_response, request_id


class RejectNul:
    """Refuses a path or query with a NUL character in it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or not _holds_nul(scope):
            await self.app(scope, receive, send)
            return
        error = BadInput("The address holds a NUL character.", fix="Leave out the %00: no name has it.")
        await problem_response(error, request_id(HTTPConnection(scope)))(scope, receive, send)


def _holds_nul(scope: Scope) -> bool:
    query: bytes = scope["query_string"]
    return "\x00" in scope["path"] or b"%00" in query or b"\x00" in query
