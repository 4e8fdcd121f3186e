"""The one thread that writes, and its group commit."""

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

from crucible.control.db.port import Outcome
from crucible.control.db.sqlite.connection import close_connection, driver_of, open_writer
from crucible.control.db.sqlite.failures import translate_errors
from crucible.control.db.sqlite.transaction import Fn, write_group

T = TypeVar("T")

GROUP_SIZE = 256
GROUP_SECONDS = 0.005
"""A group takes no further function after this long, so the first of it does not wait for the last."""


@dataclass(frozen=True)
class _QueuedWrite:
    fn: Fn
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Outcome[Any]]


class WriterThread:
    """Commits what is waiting as one group: while one sync runs, the next group gathers."""

    def __init__(self, path: str, group_seconds: float = GROUP_SECONDS) -> None:
        self._group_seconds = group_seconds
        with translate_errors():
            self._connection = open_writer(path)
        self._queue: SimpleQueue[_QueuedWrite | None] = SimpleQueue()
        self._stopping = False
        # A daemon: a process that ends without close() loses only what nobody was told is stored.
        self._thread = threading.Thread(target=self._serve, name="db-writer", daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[[Connection], T]) -> asyncio.Future[Outcome[T]]:
        """The outcome of `fn`, set in the calling loop once it is committed or undone."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome[T]] = loop.create_future()
        self._queue.put(_QueuedWrite(fn, loop, future))
        return future

    def stop(self) -> None:
        """Block until everything submitted has been committed and the file is closed."""
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while not self._stopping:
            self._commit_next()
        # No room or another reader: the WAL stays, and the next to open the file reads it.
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
        _send_outcomes(group, outcomes)

    def _gather(self, first: _QueuedWrite, group: list[_QueuedWrite]) -> Iterator[Fn]:
        """Yield the functions of one group, noting in `group` what was taken."""
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
    answers = list(zip(group, outcomes, strict=True))
    for loop in {write.loop for write in group}:
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits there any more
            loop.call_soon_threadsafe(_set_results, [a for a in answers if a[0].loop is loop])


def _set_results(answers: list[tuple[_QueuedWrite, Outcome[Any]]]) -> None:
    for write, outcome in answers:
        if not write.future.done():
            write.future.set_result(outcome)
