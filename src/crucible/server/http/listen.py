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
from crucible.server.http.connections import ConnectionLimiter, HttpProtocol, TlsHandshake

STUCK_MILLISECONDS = 120_000
"""The kernel drops a connection whose peer acknowledges no data for this long."""


LOG_SECONDS = 30.0
"""Minimum time between two log lines about connections that cannot be accepted."""

FILES = 65_536
"""Limit of open files that the server asks for: connections of both listeners, and everything else."""

log = structlog.get_logger("crucible.server")


@dataclass(frozen=True)
class TlsFiles:
    """A certificate and its private key, as PEM files."""

    certificate: Path
    key: Path


class PortInUse(Trouble):
    code = "port_in_use"


def bind(host: str, port: int | None, preferred: int | None = None) -> socket.socket:
    """Return a socket bound to `port`; without one, to `preferred` if that is free, else to any free port."""
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
    # asyncio sets TCP_NODELAY only on sockets whose protocol is given as IPPROTO_TCP.
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
            why="Another program, perhaps another Crucible server, listens there.",
            fix="Leave out --port to get a free one, or choose another.",
            port=port,
        )
    return Trouble(f"Cannot listen on port {port} of {host}.", why=str(error), fix="Choose another port.", port=port)


def raise_file_limit(wanted: int = FILES) -> None:
    """Raise this process's soft limit of open files, often 1,024, to `wanted` or as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):  # some systems have limits that they do not report
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class AcceptErrorLog:
    """Loop exception handler that logs "too many open files" every 30 seconds at most.

    The loop itself would report it each second for every waiting connection.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged_at: float | None = None

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not str(context.get("message", "")).startswith("socket.accept() out of system resource"):
            loop.default_exception_handler(context)
            return
        now = self._clock()
        if self._logged_at is None or now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            fix = "Raise the limit of open files (ulimit -n), or stop programs that hold connections open."
            log.error("connections cannot be taken", why=str(context.get("exception")), fix=fix)


class _WebSocketProtocol(WebSocketsSansIOProtocol):
    def shutdown(self) -> None:
        # After the client has closed it, uvicorn would still send a close frame, which raises and aborts the shutdown.
        if not self.transport.is_closing():
            super().shutdown()


class UvicornListener(uvicorn.Server):
    """A uvicorn server in an event loop that it shares. It installs no signal handlers."""

    def __init__(self, app: ASGIApp, bound: socket.socket, *, tls: TlsFiles | None = None) -> None:
        super().__init__(_config(app, tls))
        self._bound = bound
        self._pool = ConnectionLimiter()
        self.listening = asyncio.Event()

    async def run_until_stopped(self) -> None:
        await self.serve(sockets=[self._bound])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen as uvicorn does, with connections that belong to the pool."""
        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(self._connection, sock=bound, backlog=self.config.backlog)
            for bound in sockets or ()
        ]
        self.started = True
        self.listening.set()

    def _connection(self) -> HttpProtocol | TlsHandshake:
        http = HttpProtocol(self._pool, config=self.config, server_state=self.server_state, app_state={})
        return http if self.config.ssl is None else TlsHandshake(self._pool, http, self.config.ssl)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _config(app: ASGIApp, tls: TlsFiles | None) -> uvicorn.Config:
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
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
    )
