"""Authentication before every route and socket.

A browser on this computer can be made to send requests here by any page it shows. Three things keep such a
page out: it has no token, its Host names another site (DNS rebinding), or its Origin does (CSRF). Browsers attach a
session's cookie by themselves, so it counts only if the browser says that our own page sent the request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from crucible.core.errors import CrucibleError, NotAllowed
from crucible.core.people.identity import OWNER, Identity, LoginMethod
from crucible.core.secret import Secret
from crucible.server.http.connections import accept_connection
from crucible.server.http.problems import problem_response, request_id

OPEN_PATHS = frozenset(
    {"/healthz", "/readyz", "/login", "/api/v1/login", "/api/v1/login/oidc", "/api/v1/login/oidc/callback"}
)
"""Paths that answer anyone; all others need a token or a session."""

IDENTITY = "crucible.who"
"""Key of a request's scope: the Identity of the caller, after authentication."""
STILL_ALLOWED = "crucible.still"
"""Key of a request's scope: a function that checks whether the caller still has access. A socket outlives a token."""
COOKIE = "crucible_session"
ENCRYPTED = frozenset({"https", "wss"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
Identify = Callable[[str], Awaitable[Identity | None]]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
PROTOCOL = "crucible.v1"
BEARER_PROTOCOL = "crucible.bearer."
"""Browsers cannot set headers on a socket; they offer the token as a subprotocol."""


class ForeignSite(NotAllowed):
    """The request comes from a page of another site, or is addressed to one."""

    code = "foreign_site"
    http_status = 403


class AuthMiddleware:
    """Lets a request through if its Host is one of `hosts`, its Origin is our own, and its caller is known.

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
        if who is not None:
            accept_connection(scope)
        await self.app(scope, receive, send)

    async def _still_allowed(self, token: str, who: Identity) -> bool:
        return await self.identify(token) == who

    async def check(self, scope: Scope) -> Identity | None:
        """Return the caller, or None on open paths. Raises NotAllowed if the request may not pass."""
        headers = Headers(scope=scope)
        check_host(headers, self.hosts)
        check_origin(headers, scope.get("scheme", "http"))
        if scope["path"] in OPEN_PATHS and scope["type"] == "http":
            return None
        token = bearer(headers) or protocol_bearer(scope) or session_cookie(scope, headers)
        if not token:
            raise _missing_token("This server needs a token.")
        if self.token.matches(token):
            return OWNER
        who = await self.identify(token)
        in_cookie = not bearer(headers) and not protocol_bearer(scope)
        if who is None or (who.via is LoginMethod.BROWSER and not in_cookie):
            raise _missing_token("The token is not valid on this server, or not any more.")
        scope[STILL_ALLOWED] = partial(self._still_allowed, token, who)
        return who


class HostMiddleware:
    """Lets a request through if its Host is one of `hosts`; who asks is checked elsewhere."""

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str]) -> None:
        self.app = app
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            try:
                check_host(Headers(scope=scope), self.hosts)
            except ForeignSite as error:
                await problem_response(error, request_id(HTTPConnection(scope)))(scope, receive, send)
                return
        await self.app(scope, receive, send)


def bearer(headers: Headers) -> str:
    """Return the token in the Authorization header; empty if there is none, or one that is not ASCII as ours are."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.isascii() else ""


def session_cookie(scope: Scope, headers: Headers) -> str:
    """Return the session in the cookie; empty if there is none. Raises ForeignSite for a change without an Origin."""
    session = HTTPConnection(scope).cookies.get(COOKIE, "")
    if not session or not session.isascii():
        return ""
    changes = scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS
    if changes and "origin" not in headers:
        raise ForeignSite(
            "The request does not say which page sent it.",
            why="Browsers send a session's cookie with the requests of any page.",
            fix="Send the Origin header, or a token in the Authorization header.",
        )
    return session


def protocol_bearer(scope: Scope) -> str:
    """Return the token that a browser offers as a subprotocol; empty if there is none."""
    offered = [name for name in scope.get("subprotocols", ()) if name.startswith(BEARER_PROTOCOL)]
    return offered[0].removeprefix(BEARER_PROTOCOL) if offered else ""


def chosen_protocol(scope: Scope) -> str | None:
    """Return the subprotocol to accept a socket with: a browser disconnects if none of its offers is accepted."""
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
        return "It listens on this computer only, and answers to no other host name."
    return "It answers only to its own host names, because other sites could point theirs here (DNS rebinding)."


def check_origin(headers: Headers, scheme: str) -> None:
    """Raise ForeignSite if a page of another site sent the request; `scheme` is that of the request.

    Of an encrypted site, a page that came unencrypted is another: anyone on the network path could have made it.
    """
    origin = headers.get("origin")
    if origin is None:
        return
    page = _split(origin)
    if page.netloc != headers.get("host") or (scheme in ENCRYPTED and page.scheme != "https"):
        raise ForeignSite(
            f"Pages of {origin!r} may not call this server.",
            why="Pages of other sites could act on your behalf.",
            fix="Use the page, the command or the API of this server itself.",
        )


def _split(url: str) -> SplitResult:
    """Return the parts of a URL; empty parts if it is invalid."""
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
