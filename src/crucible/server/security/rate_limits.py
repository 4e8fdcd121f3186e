"""Rate limits: a token bucket for each user, and a much smaller one for each address that logs in.

The owner, who calls from this computer, is not limited.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from crucible.core.errors import TooManyAttempts
from crucible.core.people.identity import OWNER, Identity, LoginMethod
from crucible.server.http.problems import problem_response, request_id
from crucible.server.security.auth import IDENTITY

LOGINS = frozenset({"/login", "/api/v1/login", "/api/v1/login/oidc", "/api/v1/login/oidc/callback"})
MAX_BUCKETS = 10_000
"""Maximum number of buckets; the least recently used one is dropped first."""


@dataclass(frozen=True)
class Rate:
    """`burst` requests at once, and `second` more each second."""

    second: float
    burst: int


USERS = Rate(100.0, 500)
ANONYMOUS = Rate(0.5, 20)


class TokenBuckets:
    """Token buckets by name, all with the same rate."""

    def __init__(self, rate: Rate, now: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._now = now
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, name: str) -> float:
        """Take a token; return 0, or the seconds until there is one."""
        now = self._now()
        left, at = self._left.pop(name, (float(self._rate.burst), now))
        filled = min(left + (now - at) * self._rate.second, float(self._rate.burst))
        taken = filled >= 1
        self._left[name] = (filled - 1 if taken else filled, now)
        while len(self._left) > MAX_BUCKETS:
            del self._left[next(iter(self._left))]
        return 0.0 if taken else (1 - filled) / self._rate.second


class RateLimit:
    """Middleware that answers 429 with the seconds to wait. Needs the identity that AuthMiddleware sets."""

    def __init__(self, app: ASGIApp, *, users: Rate, anonymous: Rate) -> None:
        self.app = app
        self._users = TokenBuckets(users)
        self._anonymous = TokenBuckets(anonymous)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wait = self._wait(scope) if scope["type"] in ("http", "websocket") else 0.0
        if wait <= 0:
            await self.app(scope, receive, send)
            return
        error = TooManyAttempts(
            "Too many requests.",
            why="This many at once would slow down other users.",
            fix=f"Try again in {max(1, round(wait))} s.",
            retry_after=max(1, round(wait)),
        )
        await problem_response(error, request_id(HTTPConnection(scope)))(scope, receive, send)

    def _wait(self, scope: Scope) -> float:
        who: Identity | None = scope.get(IDENTITY)
        if who is OWNER:
            return 0.0
        if who is not None:
            return self._users.take(_name(who))
        client = scope.get("client")
        return self._anonymous.take(str(client[0]) if client else "") if scope["path"] in LOGINS else 0.0


def _name(who: Identity) -> str:
    """Return the bucket's name: one for all tokens of a user, one for each share link."""
    return who.token if who.via is LoginMethod.SHARE and who.token is not None else who.user
