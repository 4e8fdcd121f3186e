"""The database in one local file."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from os import PathLike, fspath
from typing import TypeVar

from sqlalchemy import Connection

from crucible.control.db.port import CloseOnce, Outcome
from crucible.control.db.sqlite.connection import close_connection, open_reader
from crucible.control.db.sqlite.failures import translate_errors
from crucible.control.db.sqlite.transaction import read_snapshot
from crucible.control.db.sqlite.writer import GROUP_SECONDS, WriterThread

T = TypeVar("T")

READERS = 4
MAX_WAITING = 4096


class SqliteDb:
    """`Db` on SQLite in WAL mode: one writer thread with group commit, and a few reader threads.

    Belongs to the event loop that uses it. At most `max_waiting` writes are queued; further ones wait outside the
    queue. Does not check the schema; `open_database` does.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        readers: int = READERS,
        max_waiting: int = MAX_WAITING,
        group_seconds: float = GROUP_SECONDS,
    ) -> None:
        self._path = fspath(path)
        self._writer = WriterThread(self._path, group_seconds)
        self._write_slots = asyncio.Semaphore(max_waiting)
        self._pool = ThreadPoolExecutor(readers, thread_name_prefix="db-reader")
        self._idle: deque[Connection] = deque()
        self._closing = CloseOnce(self._end)

    async def write(self, fn: Callable[[Connection], T]) -> T:
        async with self._write_slots:
            self._closing.check_open()
            outcome = await self._writer.submit(fn)
        return outcome.unwrap()

    async def read(self, fn: Callable[[Connection], T]) -> T:
        self._closing.check_open()
        outcome = await asyncio.get_running_loop().run_in_executor(self._pool, self._read, fn)
        return outcome.unwrap()

    async def close(self) -> None:
        await self._closing.close()

    def _read(self, fn: Callable[[Connection], T]) -> Outcome[T]:
        connection = self._borrow()
        try:
            return read_snapshot(connection, fn)
        finally:
            self._idle.append(connection)

    def _borrow(self) -> Connection:
        try:
            return self._idle.pop()
        except IndexError:
            with translate_errors():
                return open_reader(self._path)

    def _end(self) -> None:
        """Close the readers before the writer: the last connection to close merges the WAL into the file."""
        self._pool.shutdown()
        while self._idle:
            close_connection(self._idle.pop())
        self._writer.stop()
