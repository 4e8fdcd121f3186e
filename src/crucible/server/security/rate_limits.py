"""How often somebody may ask: each has a bucket that fills with time, and a request takes one drop out of it.

The owner, who asks from this computer, is not held up. Whoever tries to log in is known by his address only, and gets
far fewer tries.
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
"""Buckets that are kept; of those that were not used lately the oldest goes first."""


@dataclass(frozen=True)
class Rate:
    """`burst` requests at once, and `second` more each second."""

    second: float
    burst: int


USERS = Rate(100.0, 500)
ANONYMOUS = Rate(0.5, 20)


class TokenBuckets:
    def __init__(self, rate: Rate, now: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._now = now
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, name: str) -> float:
        """Seconds to wait until there is a drop; 0 when one was taken."""
        now = self._now()
        left, at = self._left.pop(name, (float(self._rate.burst), now))
        filled = min(left + (now - at) * self._rate.second, float(self._rate.burst))
        taken = filled >= 1
        self._left[name] = (filled - 1 if taken else filled, now)
        while len(self._left) > MAX_BUCKETS:
            del self._left[next(iter(self._left))]
        return 0.0 if taken else (1 - filled) / self._rate.second


class RateLimit:
    """Answers 429, with the seconds to wait, to whoever asks too often. The guard before it knows who that is."""

    def __init__(self, app: ASGIApp, *, users: Rate, strangers: Rate) -> None:
        self.app = app
        self._users = TokenBuckets(users)
        self._strangers = TokenBuckets(strangers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wait = self._wait(scope) if scope["type"] in ("http", "websocket") else 0.0
        if wait <= 0:
            await self.app(scope, receive, send)
            return
        error = TooManyAttempts(
            "Too many requests.",
            why="So many at once would hold up everybody else.",
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
        return self._strangers.take(str(client[0]) if client else "") if scope["path"] in LOGINS else 0.0


def _name(who: Identity) -> str:
    """Whose bucket it is: a user's, however many tokens he has; whoever looks on by a share link has one by himself."""
    return who.token if who.via is LoginMethod.SHARE and who.token is not None else who.user
