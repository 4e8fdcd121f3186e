"""Limits on the requests and sockets that one user, token, share link or address may have open at the same time.

They leave room for the owner, who is not limited, and for everyone else.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from crucible.core.errors import TooManyAttempts
from crucible.core.people.identity import OWNER, Identity, LoginMethod
from crucible.server.http.problems import problem_response, request_id
from crucible.server.security.auth import IDENTITY, bearer

PER_USER = 500
PER_TOKEN = 400
PER_SHARE_LINK = 100
PER_SHARE_LINK_AND_ADDRESS = 20
PER_ADDRESS = 1000
ALL_BUT_THE_OWNER = 1600
PER_AGENT = 64
"""For each machine's and each attempt's secret: long polls, uploads and sessions."""

RETRY_SECONDS = 5
Limits = Callable[[Scope], Iterator[tuple[str, int]]]
"""Returns who a request counts for, and how many each of them may have open."""


def user_limits(scope: Scope) -> Iterator[tuple[str, int]]:
    """Return the limits of a request on the API; none for the owner and on open paths."""
    who: Identity | None = scope.get(IDENTITY)
    if who is None or who is OWNER:
        return
    address = scope["client"][0] if scope.get("client") else ""
    if who.via is LoginMethod.SHARE:
        yield f"share link {who.token} from {address}", PER_SHARE_LINK_AND_ADDRESS
        yield f"share link {who.token}", PER_SHARE_LINK
    else:
        yield f"token {who.token}", PER_TOKEN
        yield f"user {who.user}", PER_USER
    yield f"address {address}", PER_ADDRESS
    yield "all but the owner", ALL_BUT_THE_OWNER


def agent_limits(scope: Scope) -> Iterator[tuple[str, int]]:
    """Return the limit of a request by an agent: one for each secret, valid or not."""
    secret = bearer(Headers(scope=scope))
    if secret:
        yield hashlib.sha256(secret.encode()).hexdigest(), PER_AGENT


class ConcurrencyLimit:
    """Middleware that answers 429 to a request or socket beyond one of its limits."""

    def __init__(self, app: ASGIApp, *, limits: Limits) -> None:
        self.app = app
        self._limits = limits
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limits = dict(self._limits(scope)) if scope["type"] in ("http", "websocket") else {}
        if any(self._open[name] >= most for name, most in limits.items()):
            await problem_response(_too_many(), request_id(HTTPConnection(scope)))(scope, receive, send)
            return
        self._open.update(limits.keys())
        try:
            await self.app(scope, receive, send)
        finally:
            self._open.subtract(limits.keys())
            for name in limits:
                if not self._open[name]:
                    del self._open[name]


def _too_many() -> TooManyAttempts:
    return TooManyAttempts(
        "Too many requests and connections are open at once.",
        why="One user, token, share link or address may not take the room of the others.",
        fix=f"Close some that are no longer needed, and try again in {RETRY_SECONDS} s.",
        retry_after=RETRY_SECONDS,
    )
