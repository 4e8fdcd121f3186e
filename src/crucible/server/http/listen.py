"""Bind sockets, and run uvicorn on them without its signal handlers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from crucible.core.errors import Trouble

STUCK_MILLISECONDS = 120_000
"""A connection whose reader takes nothing for so long is dropped by the kernel."""


TELL_SECONDS = 30.0

CONNECTIONS = 2000
"""Requests and sockets at once; further ones get 503."""
FILES = 2 * CONNECTIONS
"""Files this process wants to be allowed to have open: connections of both listeners, and what else it holds."""

log = structlog.get_logger("crucible.server")


@dataclass(frozen=True)
class TlsFiles:
    """PEM files."""

    certificate: Path
    key: Path


class PortInUse(Trouble):
    code = "port_in_use"


def bind(host: str, port: int | None, preferred: int | None = None) -> socket.socket:
    """A bound socket: on `port` or not at all; without one, on `preferred` if that is free, else on any."""
    if port:
        return _bind_exactly(host, port)
    with contextlib.suppress(PortInUse):
        if preferred:
            return _bind_exactly(host, preferred)
    return _bind_exactly(host, 0)


def url_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def port_of(bound: socket.socket) -> int:
    return int(bound.getsockname()[1])


def _bind_exactly(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio answers without delay (TCP_NODELAY) only on sockets that say which protocol they are of.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STUCK_MILLISECONDS)
        bound.bind((host, port))
        bound.listen(128)
    except (OSError, OverflowError) as error:
        bound.close()
        raise _cannot_bind(host, port, error) from error
    return bound


def _cannot_bind(host: str, port: int, error: Exception) -> Trouble:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return PortInUse(
            f"Port {port} of {host} is in use.",
            why="Another program, perhaps another Crucible, listens there.",
            fix="Leave --port out to get a free one, or name another.",
            port=port,
        )
    return Trouble(f"Cannot listen on port {port} of {host}.", why=str(error), fix="Name another port.", port=port)


def raise_file_limit(wanted: int = FILES) -> None:
    """Raise this process's own limit of open files, often 1,024, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):  # some systems have limits that they do not tell
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class AcceptErrorLog:
    """Loop exception handler that logs "too many open files" every 30 seconds at most.

    The loop itself would report it each second for every waiting connection.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told_at: float | None = None

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not str(context.get("message", "")).startswith("socket.accept() out of system resource"):
            loop.default_exception_handler(context)
            return
        now = self._clock()
        if self._told_at is None or now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            fix = "Raise the limit of open files (ulimit -n), or end what holds connections."
            log.error("connections cannot be taken", why=str(context.get("exception")), fix=fix)


class _WebSocketProtocol(WebSocketsSansIOProtocol):
    def shutdown(self) -> None:
        # The client has closed it: uvicorn would send a close frame all the same, which raises and ends the shutdown.
        if not self.transport.is_closing():
            super().shutdown()


class UvicornListener(uvicorn.Server):
    """One uvicorn server in a loop that others share. Signals are the loop's business, not its."""

    def __init__(
        self, app: ASGIApp, bound: socket.socket, *, connections: int = CONNECTIONS, tls: TlsFiles | None = None
    ) -> None:
        super().__init__(_config(app, connections, tls))
        self._bound = bound
        self.listening = asyncio.Event()

    async def run_until_stopped(self) -> None:
        await self.serve(sockets=[self._bound])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _config(app: ASGIApp, connections: int, tls: TlsFiles | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="none",
        http="h11",
        ws=_WebSocketProtocol,
        ws_max_size=64 * 1024,
        ws_ping_interval=20.0,
        ws_ping_timeout=20.0,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=connections,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
    )
