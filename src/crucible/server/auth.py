"""Who may ask: one guard before every route and socket. What it does not know, it refuses.

A browser on this computer can be made to send requests here by any page it shows. Three things keep such a
page out: it has no token, its Host names another site (DNS rebinding), or its Origin does (CSRF).
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from crucible.core.errors import NotAllowed
from crucible.core.secret import Secret
from crucible.server.problems import problem, request_id

OPEN = frozenset({"/healthz", "/readyz"})
"""Paths that answer anyone; all others need the token."""

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
PROTOCOL = "crucible.v1"
BEARER_PROTOCOL = "crucible.bearer."
"""Browsers cannot set headers on a socket; they offer the token as a subprotocol."""


class ForeignSite(NotAllowed):
    """The request came by way of another site."""

    code = "foreign_site"
    http_status = 403


class Guard:
    """Lets a request through if its Host is one of `hosts`, its Origin is our own, and it has the token."""

    def __init__(self, app: ASGIApp, *, token: str, hosts: frozenset[str] = LOOPBACK) -> None:
        self.app = app
        self.token = Secret(token)
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        try:
            self.check(scope)
        except NotAllowed as error:
            await problem(error, request_id(HTTPConnection(scope)))(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def check(self, scope: Scope) -> None:
        """Raise NotAllowed unless the request may pass."""
        headers = Headers(scope=scope)
        check_host(headers, self.hosts)
        check_origin(headers)
        if scope["path"] in OPEN and scope["type"] == "http":
            return
        given = bearer(headers) or protocol_bearer(scope)
        if not given:
            raise _no_token("This server needs a token.")
        if not self.token.matches(given):
            raise _no_token("The token is not the one of this server.")


def bearer(headers: Headers) -> str:
    """The token in the Authorization header; empty if there is none. Ours are plain ASCII."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.isascii() else ""


def protocol_bearer(scope: Scope) -> str:
    offered = [name for name in scope.get("subprotocols", ()) if name.startswith(BEARER_PROTOCOL)]
    return offered[0].removeprefix(BEARER_PROTOCOL) if offered else ""


def chosen_protocol(scope: Scope) -> str | None:
    """The subprotocol to accept a socket with: a browser leaves if none of those it offered is taken."""
    offered = scope.get("subprotocols", ())
    ours = [name for name in offered if name == PROTOCOL or name.startswith(BEARER_PROTOCOL)]
    return PROTOCOL if PROTOCOL in ours else next(iter(ours), None)


def check_host(headers: Headers, hosts: frozenset[str]) -> None:
    host = headers.get("host", "")
    if _split(f"//{host}").hostname not in hosts:
        raise ForeignSite(
            f"The host {host!r} is not this server.",
            why="It listens on this computer only, and answers to no other name.",
            fix=f"Use one of: {', '.join(sorted(hosts))}.",
        )


def check_origin(headers: Headers) -> None:
    origin = headers.get("origin")
    if origin is not None and _split(origin).netloc != headers.get("host"):
        raise ForeignSite(
            f"The page {origin!r} may not speak to this server.",
            why="Pages of other sites could act in your name.",
            fix="Use the page, the command or the API of this server itself.",
        )


def _split(url: str) -> SplitResult:
    """The parts of an address; none of them if it is no address."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def _no_token(what: str) -> NotAllowed:
    return NotAllowed(
        what,
        why="Whoever can send requests here can run programs as you.",
        fix="Send `Authorization: Bearer <token>`; the token is in the file `token` of the state folder "
        "(`crucible doctor` says where that is). The crucible command does so itself.",
    )
