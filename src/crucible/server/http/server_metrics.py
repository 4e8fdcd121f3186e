"""Prometheus metrics of this server: request times, open sockets and event loop lag, with bounded labels."""

from __future__ import annotations

import asyncio
from http import HTTPMethod

from prometheus_client import CollectorRegistry, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LAG_SECONDS = 0.5
"""Interval of the measurements of the event loop's lag."""
NO_ROUTE = "(none)"
OTHER = "(other)"

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_METHODS = frozenset(HTTPMethod)


class ServerMetrics:
    """Metrics of one server, in its own registry: two servers in one process do not share numbers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Histogram(
            "crucible_http_request_seconds",
            "Time to answer a request, by its route's template.",
            ("method", "route", "status"),
            buckets=_BOUNDS,
            registry=self.registry,
        )
        self.sockets = Gauge("crucible_websockets", "WebSockets that are open.", registry=self.registry)
        self.lag = Histogram(
            "crucible_event_loop_lag_seconds",
            "Delay of the event loop in running a due callback.",
            buckets=_BOUNDS,
            registry=self.registry,
        )
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch_loop(self) -> None:
        """Measure the lag of the running loop until it ends. Idempotent."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._measure(loop, loop.time() + LAG_SECONDS)

    def _measure(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        def tick() -> None:
            self.lag.observe(max(loop.time() - due, 0.0))
            self._measure(loop, loop.time() + LAG_SECONDS)

        loop.call_at(due, tick)


class RequestTimer:
    """Middleware that times every request, refused ones included."""

    def __init__(self, app: ASGIApp, meters: ServerMetrics) -> None:
        self.app = app
        self.meters = meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            with self.meters.sockets.track_inprogress():
                await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._timed(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _timed(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.meters.watch_loop()
        loop = asyncio.get_running_loop()
        started, status = loop.time(), 500

        async def send_and_record(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_and_record)
        finally:
            labels = (_method(scope), route_of(scope), str(status))
            self.meters.requests.labels(*labels).observe(loop.time() - started)


def route_of(scope: Scope) -> str:
    """Return the route's template, never the path itself, so that the number of labels is bounded."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else NO_ROUTE


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in _METHODS else OTHER
