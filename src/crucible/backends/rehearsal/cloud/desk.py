"""The dispatcher of HTTP requests: check the key, apply faults, call the route, and build the response."""

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
    """Raised to close the connection without a response."""


@dataclass(frozen=True)
class Keys:
    """The API keys of customers and of the admin routes."""

    customer: str = field(repr=False)
    admin: str = field(repr=False)


class Dispatcher:
    """Answers requests. `sleep` waits for slow responses."""

    def __init__(self, world: World, keys: Keys, pid: int, sleep: Callable[[float], None] = time.sleep) -> None:
        self._world = world
        self._keys = keys
        self._pid = pid
        self._sleep = sleep
        self._lost_responses = itertools.count()

    def answer(self, request: Request, bearer: str) -> Response:
        """Return the response. Every error is a response with a code, except ConnectionCut, which is raised."""
        try:
            return self._answer(request, bearer)
        except Refused as error:
            return Response(error.status, _error(error.code, error.message))

    def _answer(self, request: Request, bearer: str) -> Response:
        if request.path == "/health":
            return Response(200, {"pid": self._pid})
        if request.path.startswith("/metadata/"):
            return self._call_route(MACHINE, request)
        if request.path.startswith("/admin/"):
            _check(bearer, self._keys.admin)
            return self._call_route(ADMIN, request)
        _check(bearer, self._keys.customer)
        return self._with_faults(request)

    def _with_faults(self, request: Request) -> Response:
        """Answer a customer's request, with faults. The bill has none, because tests compare with it."""
        if request.path == "/v1/bill":
            return self._call_route(CUSTOMER, request)
        faults, (slow, throttled, unavailable) = self._world.strike_faults("slow", "throttled", "unavailable")
        if slow:
            self._sleep(faults.slow_seconds)
        if throttled or unavailable:
            return _try_later(429 if throttled else 503, faults.retry_after)
        if request.method == "POST":
            return self._create(request)
        if request.method == "DELETE":
            return self._terminate(request)
        return self._call_route(CUSTOMER, request)

    def _create(self, request: Request) -> Response:
        _, (request_lost, response_lost) = self._world.strike_faults("lost_requests", "lost_answers")
        if request_lost:
            raise ConnectionCut
        answer = self._call_route((CREATE,), request)
        if not response_lost:
            return answer
        if next(self._lost_responses) % 2:
            raise ConnectionCut
        return Response(504, _error("gateway_timeout", "no answer in time"))

    def _terminate(self, request: Request) -> Response:
        _, (fails,) = self._world.strike_faults("terminate_errors")
        if fails:
            return Response(500, _error("internal_error", "something went wrong"))
        return self._call_route((TERMINATE,), request)

    def _call_route(self, routes: Sequence[Route], request: Request) -> Response:
        for route in routes:
            match = route.path.fullmatch(request.path)
            if match and route.method == request.method:
                with self._world.exclusive() as now:
                    return route.handler(self._world, replace(request, params=match.groupdict()), now)
        raise Refused(404, "no_such_route", f"there is no {request.method} {request.path}")


def _check(bearer: str, key: str) -> None:
    if not hmac.compare_digest(bearer.encode(), key.encode()):
        raise Refused(401, "unauthorized", "the key is missing or wrong")


def _try_later(status: int, seconds: int) -> Response:
    code = "too_many_requests" if status == 429 else "service_unavailable"
    return Response(status, _error(code, "try again later"), {"Retry-After": str(seconds)})


def _error(code: str, message: str) -> dict[str, object]:
    return {"error": {"code": code, "message": message}}
