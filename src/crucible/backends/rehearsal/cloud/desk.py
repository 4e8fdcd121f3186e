"""Dispatch requests: check the key, strike faults, call the route, and build the response."""

from __future__ import annotations

import hmac
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from .admin import ADMIN
from .customer import CREATE, CUSTOMER, MACHINE, TERMINATE
from .exchange import Request, Response, Route
from .world import Refused, World


class ConnectionCut(Exception):
    """The connection ends here, without an answer."""


@dataclass(frozen=True)
class Keys:
    """`customer` for the API, `admin` for what is done to it."""

    customer: str = field(repr=False)
    admin: str = field(repr=False)


class Dispatcher:
    def __init__(self, world: World, keys: Keys, pid: int, sleep: Callable[[float], None] = time.sleep) -> None:
        self._world = world
        self._keys = keys
        self._pid = pid
        self._sleep = sleep
        self._turns = itertools.count()

    def answer(self, request: Request, bearer: str) -> Response:
        """Raises Cut. Whatever else goes wrong is an answer, with a code."""
        try:
            return self._answer(request, bearer)
        except Refused as no:
            return Response(no.status, {"error": {"code": no.code, "message": no.message}})

    def _answer(self, request: Request, bearer: str) -> Response:
        if request.path == "/health":
            return Response(200, {"pid": self._pid})
        if request.path.startswith("/metadata/"):
            return self._work(MACHINE, request)
        if request.path.startswith("/admin/"):
            _check(bearer, self._keys.admin)
            return self._work(ADMIN, request)
        _check(bearer, self._keys.customer)
        return self._with_faults(request)

    def _with_faults(self, request: Request) -> Response:
        """Answer a customer's request, with faults. The bill has none: tests compare with it."""
        if request.path == "/v1/bill":
            return self._work(CUSTOMER, request)
        faults, (slow, busy, away) = self._world.strike_faults("slow", "throttled", "unavailable")
        if slow:
            self._sleep(faults.slow_seconds)
        if busy or away:
            return _try_later(429 if busy else 503, faults.retry_after)
        if request.method == "POST":
            return self._create(request)
        if request.method == "DELETE":
            return self._terminate(request)
        return self._work(CUSTOMER, request)

    def _create(self, request: Request) -> Response:
        _, (never, lost) = self._world.strike_faults("lost_requests", "lost_answers")
        if never:
            raise ConnectionCut
        answer = self._work((CREATE,), request)
        if not lost:
            return answer
        if next(self._turns) % 2:
            raise ConnectionCut
        return Response(504, _error("gateway_timeout", "no answer in time"))

    def _terminate(self, request: Request) -> Response:
        _, (fails,) = self._world.strike_faults("terminate_errors")
        if fails:
            return Response(500, _error("internal_error", "something went wrong"))
        return self._work((TERMINATE,), request)

    def _work(self, routes: Sequence[Route], request: Request) -> Response:
        for route in routes:
            found = route.path.fullmatch(request.path)
            if found and route.method == request.method:
                with self._world.turn() as now:
                    return route.work(self._world, replace(request, found=found.groupdict()), now)
        raise Refused(404, "no_such_route", f"there is no {request.method} {request.path}")


def _check(bearer: str, key: str) -> None:
    if not hmac.compare_digest(bearer.encode(), key.encode()):
        raise Refused(401, "unauthorized", "the key is missing or wrong")


def _try_later(status: int, seconds: int) -> Response:
    code = "too_many_requests" if status == 429 else "service_unavailable"
    return Response(status, _error(code, "try again later"), {"Retry-After": str(seconds)})


def _error(code: str, message: str) -> dict[str, object]:
    return {"error": {"code": code, "message": message}}
