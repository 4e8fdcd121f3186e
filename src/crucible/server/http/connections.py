"""Keep unauthenticated connections from taking the room of authenticated ones.

A connection is a newcomer until the credentials of its present request are accepted, and again with its next request. A
newcomer has to send a full request head in time, and there is room for so many newcomers: beyond that the listener
closes some, first those without a full head, of the address that has the most, oldest first. A connection whose last
request was accepted is idle until its next; of too many idle ones the oldest is closed. So an honest client is always
let in, however many connections others hold open.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from collections import Counter
from typing import Any, Protocol, cast

import h11
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10
"""Time for the full head of a request, from the connection or from its first byte, and for a TLS handshake."""
NEWCOMERS = 500
"""Connections of a listener without an accepted request."""
TRIM_SECONDS = 1.0
"""How long there may be more newcomers: after a restart hundreds of agents connect before the first request is read."""
IDLE = 1000
"""Connections of a listener whose last request was accepted, and that wait for their next."""
ACCEPT = "crucible.accept"
"""Key of a request's scope: a function to call once the request's credentials are accepted."""


def accept_connection(scope: Scope) -> None:
    """Record that the request's credentials are valid, so that its connection is no newcomer any more."""
    accept = scope.get(ACCEPT)
    if accept is not None:  # tests and sockets have no such connection
        accept()


class Closable(Protocol):
    """A connection as the pool sees it: where it comes from, whether it has sent a full head, and how to end it."""

    @property
    def address(self) -> str: ...

    @property
    def has_head(self) -> bool: ...

    def abort(self) -> None: ...


class ConnectionLimiter:
    """The newcomers and the idle connections of one listener, oldest first."""

    def __init__(self, newcomers: int = NEWCOMERS, idle: int = IDLE) -> None:
        self._most_newcomers = newcomers
        self._most_idle = idle
        self._newcomers: dict[Closable, None] = {}
        self._idle: dict[Closable, None] = {}
        self._trim_timer: asyncio.TimerHandle | None = None

    def add(self, connection: Closable) -> None:
        """Add a new connection, or one whose next request has no accepted credentials yet."""
        self._idle.pop(connection, None)
        self._newcomers[connection] = None
        if len(self._newcomers) > self._most_newcomers and self._trim_timer is None:
            self._trim_timer = asyncio.get_running_loop().call_later(TRIM_SECONDS, self.trim)

    def remove(self, connection: Closable) -> None:
        """Forget a connection that has ended, or whose present request is accepted."""
        self._newcomers.pop(connection, None)
        self._idle.pop(connection, None)

    def set_idle(self, connection: Closable) -> None:
        """Add a connection that waits for its next request; the last one was accepted."""
        self._idle[connection] = None
        if len(self._idle) > self._most_idle:
            self._abort(next(iter(self._idle)))

    def trim(self) -> None:
        """Close the newcomers that are too many."""
        self._trim_timer = None
        crowds = Counter(known.address for known in self._newcomers)
        by_claim = sorted(self._newcomers, key=lambda known: (known.has_head, -crowds[known.address]))
        for connection in by_claim[: max(0, len(by_claim) - self._most_newcomers)]:
            self._abort(connection)

    def _abort(self, connection: Closable) -> None:
        self.remove(connection)
        connection.abort()


class TlsHandshake(SSLProtocol):
    """The TLS layer of a connection, which is a newcomer from its first packet on, not only after its handshake."""

    has_head = False

    def __init__(self, pool: ConnectionLimiter, http: HttpProtocol, context: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        nobody: Any = None  # asyncio allows no waiter, its types do not
        super().__init__(loop, http, context, nobody, server_side=True, ssl_handshake_timeout=HEAD_SECONDS)
        self._pool = pool
        self._raw: Any = None
        http.handshake = self

    @property
    def address(self) -> str:
        return _address(self._raw.get_extra_info("peername"))

    def abort(self) -> None:
        self._raw.abort()

    def connection_made(self, transport: Any) -> None:
        self._raw = transport
        self._pool.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._pool.remove(self)
        super().connection_lost(exc)


class HttpProtocol(H11Protocol):
    """uvicorn's HTTP connection with a time limit on request heads, and a member of the listener's pool."""

    def __init__(self, pool: ConnectionLimiter, **given: Any) -> None:
        super().__init__(**given)
        self.handshake: TlsHandshake | None = None
        self._pool = pool
        self._accepted = False
        self._head_timer: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """The peer's IP address; empty on a Unix socket."""
        return _address(self.client)

    @property
    def has_head(self) -> bool:
        return self.conn.their_state is not h11.IDLE

    def abort(self) -> None:
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.handshake is not None:
            self._pool.remove(self.handshake)
        self._pool.add(self)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave_pool()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            cast(Scope, self.scope)[ACCEPT] = self._accept  # before its task runs
            self._accepted = False
            self._pool.add(self)
        # h11 waits for a head while it is IDLE; what has come of one is its trailing data.
        if self.has_head:
            self._cancel_head_timer()
        elif self.conn.trailing_data[0]:
            self._expect_head()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        # Its head is complete. Whether it may stay is decided by authentication and the limits on sockets.
        self._leave_pool()
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        if self._accepted:
            self._pool.set_idle(self)
        super().on_response_complete()

    def _accept(self) -> None:
        self._accepted = True
        self._pool.remove(self)

    def _leave_pool(self) -> None:
        self._cancel_head_timer()
        self._pool.remove(self)

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.abort)

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def _address(peer: Any) -> str:
    return str(peer[0]) if isinstance(peer, tuple) else ""
