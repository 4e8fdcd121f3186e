"""Keep connections that nobody has to trust from taking the room of those that are accepted.

A new connection is a newcomer: it has to send a full request head in time, and counts among the few newcomers until the
server has accepted the credentials of one of its requests. An accepted connection between two requests is idle. There
is room for so many of each; one more closes the oldest, of newcomers the oldest of the address that has the most. So
the next connection of an honest client is always let in, however many others are held open.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Protocol, cast

import h11
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
"""Time for the full head of a request, from the connection or from its first byte, and for a TLS handshake."""
NEWCOMERS = 200
"""Connections of a listener without an accepted request."""
IDLE = 1000
"""Accepted connections of a listener that wait for their next request."""
ACCEPT = "crucible.accept"
"""Key of a request's scope: a function to call once the request's credentials are accepted."""


def accept_connection(scope: Scope) -> None:
    """Record that the request's credentials are valid, so that its connection is no newcomer any more."""
    accept = scope.get(ACCEPT)
    if accept is not None:  # tests and sockets have no such connection
        accept()


class Closable(Protocol):
    """A connection as the pool sees it: where it comes from, and how to end it."""

    @property
    def address(self) -> str: ...

    def abort(self) -> None: ...


class ConnectionPool:
    """The newcomers and the idle connections of one listener, oldest first."""

    def __init__(self, newcomers: int = NEWCOMERS, idle: int = IDLE) -> None:
        self._most_newcomers = newcomers
        self._most_idle = idle
        self._newcomers: dict[Closable, None] = {}
        self._idle: dict[Closable, None] = {}
        self._accepted: set[Closable] = set()

    def add(self, connection: Closable) -> None:
        self._newcomers[connection] = None
        if len(self._newcomers) > self._most_newcomers:
            (crowded, _), *_ = Counter(known.address for known in self._newcomers).most_common(1)
            self._abort(next(known for known in self._newcomers if known.address == crowded))

    def accept(self, connection: Closable) -> None:
        """Record that a request of the connection had valid credentials. Later ones may be without."""
        if connection in self._newcomers:
            del self._newcomers[connection]
            self._accepted.add(connection)

    def set_idle(self, connection: Closable) -> None:
        if connection in self._accepted:
            self._idle[connection] = None
            if len(self._idle) > self._most_idle:
                self._abort(next(iter(self._idle)))

    def set_busy(self, connection: Closable) -> None:
        self._idle.pop(connection, None)

    def remove(self, connection: Closable) -> None:
        self._newcomers.pop(connection, None)
        self._idle.pop(connection, None)
        self._accepted.discard(connection)

    def _abort(self, connection: Closable) -> None:
        self.remove(connection)
        connection.abort()


class HttpProtocol(H11Protocol):
    """uvicorn's HTTP connection with a time limit on request heads, and a member of the listener's pool."""

    def __init__(self, pool: ConnectionPool, **given: Any) -> None:
        super().__init__(**given)
        self._pool = pool
        self._head_timer: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """The peer's IP address; empty on a Unix socket."""
        return self.client[0] if self.client else ""

    def abort(self) -> None:
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
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
            self._pool.set_busy(self)
        # h11 waits for a head while it is IDLE; what has come of one is its trailing data.
        if self.conn.their_state is not h11.IDLE:
            self._cancel_head_timer()
        elif self.conn.trailing_data[0]:
            self._expect_head()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        # Its head is complete. Whether it may stay is decided by authentication and the limits on sockets.
        self._leave_pool()
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        self._pool.set_idle(self)
        super().on_response_complete()

    def _accept(self) -> None:
        self._pool.accept(self)

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
