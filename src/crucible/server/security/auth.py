"""Authentication before every route and socket.

A browser on this computer can be made to send requests here by any page it shows. Three things keep such a
page out: it has no token, its Host names another site (DNS rebinding), or its Origin does (CSRF). A session's
cookie goes along by itself, so it counts only where the browser says that our own page sent the request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from crucible.core.errors import CrucibleError, NotAllowed
from crucible.core.people.identity import OWNER, Identity
from crucible.core.secret import Secret
from crucible.server.http.problems import problem_response, request_id

OPEN_PATHS = frozenset(
    {"/healthz", "/readyz", "/login", "/api/v1/login", "/api/v1/login/oidc", "/api/v1/login/oidc/callback"}
)
"""Paths that answer anyone; all others need a token or a session."""

IDENTITY = "crucible.who"
"""Where in a request's scope its Identity stands once the guard let it through."""
STILL_ALLOWED = "crucible.still"
"""Where a function stands that says whether the same may still ask: a socket outlives a token."""
COOKIE = "crucible_session"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
Identify = Callable[[str], Awaitable[Identity | None]]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
PROTOCOL = "crucible.v1"
BEARER_PROTOCOL = "crucible.bearer."
"""Browsers cannot set headers on a socket; they offer the token as a subprotocol."""


class ForeignSite(NotAllowed):
    """The request came by way of another site."""

    code = "foreign_site"
    http_status = 403


class AuthMiddleware:
    """Lets a request through if its Host is one of `hosts`, its Origin is our own, and it is known who asks.

    `token` is the owner's; `identify` resolves all others.
    """

    def __init__(self, app: ASGIApp, *, token: str, identify: Identify, hosts: frozenset[str] = LOOPBACK) -> None:
        self.app = app
        self.token = Secret(token)
        self.identify = identify
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        try:
            who = await self.check(scope)
        except CrucibleError as error:
            await problem_response(error, request_id(HTTPConnection(scope)))(scope, receive, send)
            return
        scope[IDENTITY] = who
        await self.app(scope, receive, send)

    async def _still(self, given: str, who: Identity) -> bool:
        return await self.identify(given) == who

    async def check(self, scope: Scope) -> Identity | None:
        """Who asks, None at the open paths; raises NotAllowed unless the request may pass."""
        headers = Headers(scope=scope)
        check_host(headers, self.hosts)
        check_origin(headers)
        if scope["path"] in OPEN_PATHS and scope["type"] == "http":
            return None
        given = bearer(headers) or protocol_bearer(scope) or session_cookie(scope, headers)
        if not given:
            raise _missing_token("This server needs a token.")
        if self.token.matches(given):
            return OWNER
        who = await self.identify(given)
        if who is None:
            raise _missing_token("The token is not one of this server, or not any more.")
        scope[STILL_ALLOWED] = partial(self._still, given, who)
        return who


def bearer(headers: Headers) -> str:
    """The token in the Authorization header; empty if there is none. Ours are plain ASCII."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.isascii() else ""


def session_cookie(scope: Scope, headers: Headers) -> str:
    """The session in the cookie; a request that changes something must say that it comes from our own page."""
    given = HTTPConnection(scope).cookies.get(COOKIE, "")
    if not given or not given.isascii():
        return ""
    changes = scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS
    if changes and "origin" not in headers:
        raise ForeignSite(
            "The request does not say which page sent it.",
            why="A session's cookie is sent along whatever page asks.",
            fix="Send the Origin header, or a token in the Authorization header.",
        )
    return given


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
            why=_names_of(hosts),
            fix=f"Use one of: {', '.join(sorted(hosts))}.",
        )


def _names_of(hosts: frozenset[str]) -> str:
    if hosts <= LOOPBACK:
        return "It listens on this computer only, and answers to no other name."
    return "It answers to its own names alone: a page of another site could lead a browser here under another."


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


def _missing_token(what: str) -> NotAllowed:
    return NotAllowed(
        what,
        why="Anyone who can send requests here could run programs as you.",
        fix="Log in again: `crucible login URL`. A program sends `Authorization: Bearer <token>`: `crucible tokens "
        "create` makes one, and the owner's is in the file `token` of the state folder, which `crucible doctor` names.",
    )
