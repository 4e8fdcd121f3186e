"""The single writer thread, which commits waiting writes in groups."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from sqlalchemy import Connection

from crucible.control.db.port import DatabaseLost, Outcome
from crucible.control.db.sqlite.connection import close_connection, driver_of, open_writer
from crucible.control.db.sqlite.failures import translate_errors
from crucible.control.db.sqlite.open_files import OpenFiles
from crucible.control.db.sqlite.transaction import Fn, write_group

T = TypeVar("T")

GROUP_SIZE = 256
GROUP_SECONDS = 0.005
"""Time after which a group takes no further functions, so that its first caller does not wait long."""


@dataclass(frozen=True)
class _QueuedWrite:
    fn: Fn
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Outcome[Any]]


class WriterThread:
    """Commits all waiting writes as one group. While one group is synced to disk, the next one gathers."""

    def __init__(self, path: str, group_seconds: float = GROUP_SECONDS) -> None:
        self._group_seconds = group_seconds
        with translate_errors():
            self._connection = open_writer(path)
        self._files = OpenFiles(path)
        self._queue: SimpleQueue[_QueuedWrite | None] = SimpleQueue()
        self._stopping = False
        # A daemon: a process that exits without close() loses only writes that have not returned.
        self._thread = threading.Thread(target=self._serve, name="db-writer", daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[[Connection], T]) -> asyncio.Future[Outcome[T]]:
        """Return a future of the calling loop, which gets the outcome of `fn` once it is committed or undone."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome[T]] = loop.create_future()
        self._queue.put(_QueuedWrite(fn, loop, future))
        return future

    def stop(self) -> None:
        """Block until all submitted writes are committed and the file is closed."""
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while not self._stopping:
            self._commit_next()
        # Fails on a full disk or beside another reader. Then the WAL stays, and is read when the file is next opened.
        driver = driver_of(self._connection)
        with contextlib.suppress(sqlite3.Error):
            driver.execute("PRAGMA busy_timeout=0").close()
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
        close_connection(self._connection)

    def _commit_next(self) -> None:
        first = self._queue.get()
        if first is None:
            self._stopping = True
            return
        group: list[_QueuedWrite] = []
        outcomes = write_group(self._connection, self._gather(first, group))
        _send_outcomes(group, self._check_files(outcomes))

    def _check_files(self, outcomes: list[Outcome[Any]]) -> list[Outcome[Any]]:
        """Return the outcomes; errors if the commit went to files that nobody will find again."""
        try:
            self._files.check()
        except DatabaseLost as error:
            return [outcome if outcome.error else Outcome(error=error) for outcome in outcomes]
        return outcomes

    def _gather(self, first: _QueuedWrite, group: list[_QueuedWrite]) -> Iterator[Fn]:
        """Yield the functions of one group, and append their writes to `group`."""
        end = time.monotonic() + self._group_seconds
        write: _QueuedWrite | None = first
        while write is not None:
            if not write.future.cancelled():
                group.append(write)
                yield write.fn
            write = self._next() if len(group) < GROUP_SIZE and time.monotonic() < end else None

    def _next(self) -> _QueuedWrite | None:
        try:
            write = self._queue.get_nowait()
        except Empty:
            return None
        self._stopping = write is None
        return write


def _send_outcomes(group: list[_QueuedWrite], outcomes: list[Outcome[Any]]) -> None:
    """Wake each waiting loop once for the whole group."""
    results = list(zip(group, outcomes, strict=True))
    for loop in {write.loop for write in group}:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits for the results
            loop.call_soon_threadsafe(_set_results, [result for result in results if result[0].loop is loop])


def _set_results(results: list[tuple[_QueuedWrite, Outcome[Any]]]) -> None:
    for write, outcome in results:
        if not write.future.done():
            write.future.set_result(outcome)
