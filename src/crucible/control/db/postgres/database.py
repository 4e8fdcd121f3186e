"""The database on a PostgreSQL server, shared by several control processes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

import psycopg
from psycopg import errors
from sqlalchemy import Connection
from stamina import RetryingCaller

from crucible.control.db.clock import ServerClock
from crucible.control.db.port import CloseOnce, DatabaseBusy, DatabaseError, Outcome
from crucible.control.db.postgres.connection import CommitFate, ConnectionPool, PooledConnection, WriteTransaction
from crucible.control.db.postgres.failures import (
    CONFLICTS,
    CommitUnknown,
    DatabaseUnreachable,
    cause_of,
    is_rejection,
    is_transient,
    translate_error,
)
from crucible.control.db.postgres.locks import LOCK_CLASS, SERIALIZED_WRITES

T = TypeVar("T")

POOL = 8
CALL_SECONDS = 15.0
"""A call that fails after this long is not tried again."""
FIRST_WAIT = 0.002
WAIT_SPREAD = 0.005
LONGEST_WAIT = 0.5


class PostgresDb:
    """`Db` on PostgreSQL: each function in a transaction of its own, `pool` of them writing at a time.

    Writes are serializable: a function may count on what it read as if it ran alone, as on SQLite. One that
    collides with another is run again, as is one whose connection was lost before COMMIT was sent. Where the
    answer to COMMIT was lost, the server is asked how it ended; if it cannot know, that is `CommitUnknown`.

    Opens up to `pool` connections for writing and half as many for reading, when they are needed. Without
    `server_clock`, `now(connection)` is the process's own, which a test may make virtual. The schema is not
    looked at; `open_database` does that.
    """

    def __init__(self, url: str, *, pool: int = POOL, seconds: float = CALL_SECONDS, server_clock: bool = True) -> None:
        readers = max(2, pool // 2)
        self._seconds = seconds
        self.clock = ServerClock()
        clock = self.clock if server_clock else None
        self._write_links, self._read_links = ConnectionPool(url, clock), ConnectionPool(url, clock)
        self._writers = ThreadPoolExecutor(pool, thread_name_prefix="db-writer")
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="db-reader")
        self._closing = CloseOnce(self._end)

    async def write(self, fn: Callable[[Connection], T]) -> T:
        self._closing.check_open()
        call = _WriteCall(self._write_links, fn, time.monotonic() + self._seconds)
        outcome = await asyncio.get_running_loop().run_in_executor(self._writers, call.run)
        return outcome.unwrap()

    async def read(self, fn: Callable[[Connection], T]) -> T:
        self._closing.check_open()
        call = _ReadCall(self._read_links, fn, time.monotonic() + self._seconds)
        outcome = await asyncio.get_running_loop().run_in_executor(self._readers, call.run)
        return outcome.unwrap()

    async def close(self) -> None:
        await self._closing.close()

    def _end(self) -> None:
        self._writers.shutdown()
        self._readers.shutdown()
        self._write_links.close()
        self._read_links.close()


class _Retry(Exception):
    """Nothing of this try was kept. `trouble` is what to say when there is no time for another."""

    def __init__(self, trouble: BaseException) -> None:
        super().__init__(str(trouble))
        self.trouble = trouble


class _TransactionOpen(Exception):
    """The server has not ended a transaction yet whose connection is lost."""


class _ReadCall(Generic[T]):
    def __init__(self, links: ConnectionPool, fn: Callable[[Connection], T], deadline: float) -> None:
        self._links = links
        self._fn = fn
        self._deadline = deadline

    def run(self) -> Outcome[T]:
        return _run_until(self._deadline, self._try)

    def _try(self) -> Outcome[T]:
        with _acquire(self._links) as link:
            try:
                link.begin_read()
                return Outcome(value=self._fn(link.connection))
            except BaseException as error:
                link.roll_back(after=error)
                if link.lost or isinstance(cause_of(error), CONFLICTS):
                    raise _Retry(_final_error(error, writing=False)) from error
                return Outcome(error=translate_error(error, writing=False))
            finally:
                link.roll_back()


class _WriteCall(Generic[T]):
    """One call of `write`, over as many tries as it takes."""

    def __init__(self, links: ConnectionPool, fn: Callable[[Connection], T], deadline: float) -> None:
        self._links = links
        self._fn = fn
        self._deadline = deadline
        self._serialized = False
        self._retried_unique = False

    def run(self) -> Outcome[T]:
        return _run_until(self._deadline, self._try)

    def _try(self) -> Outcome[T]:
        with _acquire(self._links) as link, self._serialize(link):
            try:
                begun = link.begin_write()
                value = self._fn(link.connection)
            except BaseException as error:  # noqa: BLE001  whatever fn raises belongs to its caller
                return self._handle_failure(link, error)
            return self._commit(link, begun) or Outcome(value=value)

    def _commit(self, link: PooledConnection, begun: WriteTransaction) -> Outcome[T] | None:
        """None when the transaction is durable; else why it is not."""
        try:
            return None if link.commit() else Outcome(error=_continued_after_failure())
        except psycopg.Error as error:
            if is_rejection(error):
                return self._handle_failure(link, error)
            link.drop()  # else the server might wait for more of a transaction that it still has open
            if not self._was_committed(begun):
                raise _Retry(_final_error(error, writing=True)) from error
        return None

    def _handle_failure(self, link: PooledConnection, error: BaseException) -> Outcome[T]:
        """The function or its COMMIT raised: undone, and either tried again or told."""
        link.roll_back(after=error)
        if link.lost:
            raise _Retry(_final_error(error, writing=True)) from error
        cause = cause_of(error)
        if isinstance(cause, CONFLICTS):
            self._serialized = True
            raise _Retry(translate_error(error, writing=True)) from error
        if isinstance(cause, errors.UniqueViolation) and not self._retried_unique:
            # Someone may have added the row since this snapshot: whoever looked before will now find it.
            self._retried_unique = True
            raise _Retry(translate_error(error, writing=True)) from error
        return Outcome(error=translate_error(error, writing=True))

    @contextlib.contextmanager
    def _serialize(self, link: PooledConnection) -> Iterator[None]:
        """Functions that collided once go one at a time, in all processes: the more collide, the more wait
        here instead of undoing one another. Taken before the snapshot; who holds it waits for no other in line.
        """
        if not self._serialized:
            yield
            return
        try:
            link.driver.execute("SELECT pg_advisory_lock(%s, %s)", (LOCK_CLASS, SERIALIZED_WRITES))
        except psycopg.Error as error:
            raise _Retry(_final_error(error, writing=True)) from error
        try:
            yield
        finally:
            with contextlib.suppress(psycopg.Error):  # lost: the server lets go by itself
                link.driver.execute("SELECT pg_advisory_unlock(%s, %s)", (LOCK_CLASS, SERIALIZED_WRITES))

    def _was_committed(self, begun: WriteTransaction) -> bool:
        """How a transaction ended whose COMMIT got no answer. Raises CommitUnknown."""
        try:
            fate = _retrying(self._deadline)((psycopg.Error, _TransactionOpen), self._ask_fate, begun)
        except (psycopg.Error, _TransactionOpen) as error:
            raise _commit_unknown() from error
        if fate is CommitFate.UNKNOWN:
            raise _commit_unknown()
        return fate is CommitFate.COMMITTED

    def _ask_fate(self, begun: WriteTransaction) -> CommitFate:
        fate = self._links.fate_of(begun)
        if fate is CommitFate.OPEN:
            raise _TransactionOpen
        return fate


@contextlib.contextmanager
def _acquire(links: ConnectionPool) -> Iterator[PooledConnection]:
    try:
        link = links.acquire()
    except DatabaseError as trouble:
        if not is_transient(trouble):
            raise
        raise _Retry(trouble) from trouble
    try:
        yield link
    finally:
        links.release(link)


def _run_until(deadline: float, attempt: Callable[[], Outcome[T]]) -> Outcome[T]:
    if time.monotonic() >= deadline:
        return Outcome(error=_pool_exhausted())
    try:
        return _retrying(deadline)(_Retry, attempt)
    except _Retry as again:
        return Outcome(error=again.trouble)
    except DatabaseError as trouble:
        return Outcome(error=trouble)


def _retrying(deadline: float) -> RetryingCaller:
    """Calls what it is given, and again when that fails before the deadline, after waits that grow."""
    return RetryingCaller(
        attempts=None,
        timeout=deadline - time.monotonic(),
        wait_initial=FIRST_WAIT,
        wait_jitter=WAIT_SPREAD,
        wait_max=LONGEST_WAIT,
    )


def _final_error(error: BaseException, *, writing: bool) -> BaseException:
    """What to say of a lost connection, should it stay lost."""
    told = translate_error(error, writing=writing)
    if isinstance(told, DatabaseError):
        return told
    lost = DatabaseUnreachable(
        "The connection to PostgreSQL was lost.",
        why=str(cause_of(error)).strip() or "It gave no reason.",
        fix="Nothing of this was kept; try again when the server is back.",
    )
    lost.__cause__ = error
    return lost


def _continued_after_failure() -> DatabaseError:
    return DatabaseError(
        "A function went on after one of its statements had failed.",
        why="PostgreSQL undoes the whole transaction then; nothing was kept.",
        fix="Put what may fail into `with connection.begin_nested():`.",
    )


def _pool_exhausted() -> DatabaseBusy:
    return DatabaseBusy(
        "The database is too busy for this.",
        why="All connections were in use for too long.",
        fix="Try again; look for long transactions in pg_stat_activity.",
    )


def _commit_unknown() -> CommitUnknown:
    return CommitUnknown(
        "Whether this was stored is not known.",
        why="The connection to PostgreSQL broke while it was being committed.",
        fix="Look before you ask for it again.",
    )
