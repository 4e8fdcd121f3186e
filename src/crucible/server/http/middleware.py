"""Middleware around every request: request ids, security headers, unexpected errors, NUL characters."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping

import structlog
from h11 import LocalProtocolError
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crucible.core.errors import BadInput
from crucible.core.versions import API, API_HEADER, VERSION_HEADER
from crucible.server.http.error_handlers import Internal
from crucible.server.http.problems import problem_response, request_id

log = structlog.get_logger("crucible.server")

SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
}
"""Headers of every response: no framing, no sniffing, no loading of anything. A page may set its own."""

_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestMiddleware:
    """Outermost middleware: sets the request id, security headers and `version`, and answers unexpected errors.

    A valid X-Request-ID of the request is kept; otherwise an id is generated.
    """

    def __init__(self, app: ASGIApp, version: str = "") -> None:
        self.app = app
        self._versions = {VERSION_HEADER: version, API_HEADER: str(API)} if version else {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        name = _request_id(scope)
        scope["crucible.request_id"] = name
        started = broken = False

        async def outward(message: Message) -> None:
            nonlocal started, broken
            if message["type"] in _STARTS:
                started = True
                _add_headers(message, name, self._versions)
            try:
                if not broken:
                    await send(message)
            except LocalProtocolError:  # the client did not speak HTTP, and h11 has answered already: drop our response
                broken = True

        with structlog.contextvars.bound_contextvars(request_id=name):
            try:
                await self.app(scope, receive, outward)
            except Exception as error:
                log.exception("unexpected error", path=scope["path"], method=scope.get("method", "WS"))
                if started:
                    raise  # cuts the response off, so that the client does not take it for complete
                await problem_response(_unexpected(name, error), name)(scope, receive, outward)


_STARTS = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})


def _request_id(scope: Scope) -> str:
    header = Headers(scope=scope).get("x-request-id", "")
    return header if _SANE_ID.fullmatch(header) else f"req-{secrets.token_hex(8)}"


def _add_headers(message: Message, name: str, versions: Mapping[str, str]) -> None:
    headers = MutableHeaders(scope=message) if "headers" in message else MutableHeaders(raw=[])
    message["headers"] = headers.raw
    headers.update({"X-Request-ID": name, **versions})
    for header, value in {**SECURITY_HEADERS, "Cache-Control": "no-store"}.items():
        headers.setdefault(header, value)


def _unexpected(name: str, error: Exception) -> Internal:
    return Internal(
        "The server hit an unexpected error.",
        why=f"{type(error).__name__}; the details are in server.log under {name}.",
        fix="Try again. If it persists, report it with those lines of server.log.",
    )


class RejectNul:
    """Middleware that refuses paths and queries with a NUL character."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or not _holds_nul(scope):
            await self.app(scope, receive, send)
            return
        error = BadInput("The URL contains a NUL character.", fix="Leave out the %00: no name contains it.")
        await problem_response(error, request_id(HTTPConnection(scope)))(scope, receive, send)


def _holds_nul(scope: Scope) -> bool:
    query: bytes = scope["query_string"]
    return "\x00" in scope["path"] or b"%00" in query or b"\x00" in query
