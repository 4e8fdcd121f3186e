"""Wake-ups across control processes, by NOTIFY."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import psycopg
import structlog
from psycopg.sql import SQL, Identifier

from crucible.control.db.postgres.connection import connect_arguments
from crucible.control.runtime.system_ports import LocalWakeups

Connection: TypeAlias = "psycopg.AsyncConnection[tuple[Any, ...]]"

T = TypeVar("T")

log = structlog.get_logger(__name__)

CHANNEL = "crucible"
EVERYTHING = "*"
LONGEST = 7_900
"""Bytes of a topic; the server refuses 8,000."""
MOST = 256
"""More topics at once than this are sent as one that wakes everything."""
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
CALL_SECONDS = 10.0
CHECK_SECONDS = 30.0
"""After so long without a word the listening connection is tried."""

_NOTIFY = "SELECT pg_notify(%s, topic) FROM unnest(%s::text[]) AS topic"


class PostgresWakeups(LocalWakeups):
    """`Wakeups` for all processes on one database.

    Whoever listens in this process is woken at once; the others are told soon after, each topic once however
    often it was woken meanwhile. Neither `wake` nor `listening` waits for the server. While there is no
    connection the others are told nothing (their sweeps find the work); once it is back, everything here is
    woken once, and everything elsewhere by the topics that gathered.
    """

    def __init__(self, url: str, *, channel: str = CHANNEL) -> None:
        super().__init__()
        self._arguments = connect_arguments(url)
        self._channel = channel
        self._pending: set[str] = set()
        self._has_pending = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._sender_pid: int | None = None
        self._subscribers: list[tuple[str, Callable[[str | None], None]]] = []
        self._connected = asyncio.Event()

    async def start(self) -> None:
        """Begins to connect, and goes on in the background of the running loop until `close`."""
        self._tasks = [
            asyncio.create_task(self._reconnect_forever(self._listen), name="db-listen"),
            asyncio.create_task(self._reconnect_forever(self._send_pending), name="db-notify"),
        ]

    async def connected(self, timeout: float) -> None:
        """Returns once wake-ups of others arrive. Raises TimeoutError."""
        async with asyncio.timeout(timeout):
            await self._connected.wait()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def wake(self, topic: str) -> None:
        super().wake(topic)
        self._pending.add(topic if _fits(topic) else EVERYTHING)
        self._has_pending.set()

    def subscribe_remote(self, prefix: str, tell: Callable[[str | None], None]) -> None:
        self._subscribers.append((prefix, tell))

    def _wake_everything(self) -> None:
        for topic in list(self._listeners):
            super().wake(topic)
        for _, tell in self._subscribers:
            tell(None)

    async def _listen(self, connection: Connection) -> None:
        await _with_timeout(connection.execute(SQL("LISTEN {}").format(Identifier(self._channel))))
        self._connected.set()
        self._wake_everything()  # whatever was said while nobody listened
        try:
            while True:
                async for notice in connection.notifies(timeout=CHECK_SECONDS):
                    self._on_notice(notice)
                await _with_timeout(connection.execute("SELECT 1"))
        finally:
            self._connected.clear()

    def _on_notice(self, notice: psycopg.Notify) -> None:
        if notice.pid == self._sender_pid:  # woken here already
            return
        if notice.payload == EVERYTHING:
            self._wake_everything()
            return
        super().wake(notice.payload)
        for prefix, tell in self._subscribers:
            if notice.payload.startswith(prefix):
                tell(notice.payload)

    async def _send_pending(self, connection: Connection) -> None:
        self._sender_pid = connection.info.backend_pid
        while True:
            await self._has_pending.wait()
            self._has_pending.clear()
            topics, self._pending = self._pending, set()
            try:
                await self._send(connection, topics)
            except (psycopg.Error, TimeoutError, OSError):
                self._pending |= topics  # perhaps told already: twice does no harm
                raise

    async def _send(self, connection: Connection, topics: set[str]) -> None:
        told = [EVERYTHING] if len(topics) > MOST or EVERYTHING in topics else sorted(topics)
        await _with_timeout(connection.execute(_NOTIFY, (self._channel, told)))

    async def _reconnect_forever(self, serve: Callable[[Connection], Awaitable[None]]) -> None:
        """Serves one connection after another, with growing waits while there is none."""
        wait = FIRST_WAIT
        while True:
            try:
                connection = await _with_timeout(psycopg.AsyncConnection.connect(**self._arguments))
                async with connection:
                    wait = FIRST_WAIT
                    self._has_pending.set()  # what gathered meanwhile
                    await serve(connection)
            except (psycopg.Error, TimeoutError, OSError) as error:
                log.warning("wake-ups of other processes are cut off", why=" ".join(str(error).split()))
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)


def _fits(topic: str) -> bool:
    return len(topic.encode()) <= LONGEST and "\0" not in topic


async def _with_timeout(call: Awaitable[T]) -> T:
    async with asyncio.timeout(CALL_SECONDS):
        return await call
