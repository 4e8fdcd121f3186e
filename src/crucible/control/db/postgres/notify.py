"""Wake-ups across control processes, with PostgreSQL's NOTIFY."""

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
MAX_TOPIC_BYTES = 7_900
"""Maximum bytes of a topic. The server refuses 8,000."""
MAX_TOPICS = 256
"""More topics than this at once are sent as a single wake-up of everything."""
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
CALL_SECONDS = 10.0
CHECK_SECONDS = 30.0
"""Time without notifications after which the listening connection is tested."""

_NOTIFY = "SELECT pg_notify(%s, topic) FROM unnest(%s::text[]) AS topic"


class PostgresWakeups(LocalWakeups):
    """`Wakeups` for all processes on one database.

    `wake` wakes the listeners of this process immediately and those of the others soon after, merging wake-ups of the
    same topic. Neither `wake` nor `listening` waits for the server. Without a connection the other processes get
    nothing, and their sweeps find the work. When it is back, this process wakes all its listeners once and sends the
    topics that have gathered.
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
        """Start to connect and to serve, in tasks of the running loop, until `close`."""
        self._tasks = [
            asyncio.create_task(self._reconnect_forever(self._listen), name="db-listen"),
            asyncio.create_task(self._reconnect_forever(self._send_pending), name="db-notify"),
        ]

    async def connected(self, timeout: float) -> None:
        """Wait until wake-ups of other processes arrive. Raises TimeoutError."""
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

    def subscribe_remote(self, prefix: str, callback: Callable[[str | None], None]) -> None:
        self._subscribers.append((prefix, callback))

    def _wake_everything(self) -> None:
        for topic in list(self._listeners):
            super().wake(topic)
        for _, callback in self._subscribers:
            callback(None)

    async def _listen(self, connection: Connection) -> None:
        await _with_timeout(connection.execute(SQL("LISTEN {}").format(Identifier(self._channel))))
        self._connected.set()
        self._wake_everything()  # notifications may have been missed
        try:
            while True:
                async for notice in connection.notifies(timeout=CHECK_SECONDS):
                    self._on_notice(notice)
                await _with_timeout(connection.execute("SELECT 1"))
        finally:
            self._connected.clear()

    def _on_notice(self, notice: psycopg.Notify) -> None:
        if notice.pid == self._sender_pid:  # sent by this process, which has woken its listeners already
            return
        if notice.payload == EVERYTHING:
            self._wake_everything()
            return
        super().wake(notice.payload)
        for prefix, callback in self._subscribers:
            if notice.payload.startswith(prefix):
                callback(notice.payload)

    async def _send_pending(self, connection: Connection) -> None:
        self._sender_pid = connection.info.backend_pid
        while True:
            await self._has_pending.wait()
            self._has_pending.clear()
            topics, self._pending = self._pending, set()
            try:
                await self._send(connection, topics)
            except (psycopg.Error, TimeoutError, OSError):
                self._pending |= topics  # perhaps sent already, but twice does no harm
                raise

    async def _send(self, connection: Connection, topics: set[str]) -> None:
        payloads = [EVERYTHING] if len(topics) > MAX_TOPICS or EVERYTHING in topics else sorted(topics)
        await _with_timeout(connection.execute(_NOTIFY, (self._channel, payloads)))

    async def _reconnect_forever(self, serve: Callable[[Connection], Awaitable[None]]) -> None:
        """Serve one connection after another, with growing waits between failed attempts."""
        wait = FIRST_WAIT
        while True:
            try:
                connection = await _with_timeout(psycopg.AsyncConnection.connect(**self._arguments))
                async with connection:
                    wait = FIRST_WAIT
                    self._has_pending.set()  # send what has gathered
                    await serve(connection)
            except (psycopg.Error, TimeoutError, OSError) as error:
                log.warning("wake-ups of other processes are cut off", why=" ".join(str(error).split()))
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)


def _fits(topic: str) -> bool:
    return len(topic.encode()) <= MAX_TOPIC_BYTES and "\0" not in topic


async def _with_timeout(call: Awaitable[T]) -> T:
    async with asyncio.timeout(CALL_SECONDS):
        return await call
