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
"""A call that fails after this time is not retried."""
FIRST_WAIT = 0.002
WAIT_SPREAD = 0.005
LONGEST_WAIT = 0.5


class PostgresDb:
    """`Db` on PostgreSQL: each function in a transaction of its own, up to `pool` of them writing at a time.

    Writes are serializable: a function can rely on what it read as if it ran alone, as on SQLite. A function that
    conflicts with another is run again, as is one whose connection was lost before COMMIT was sent. If the response to
    COMMIT was lost, the server is asked how the transaction ended; if it cannot know, `CommitUnknown` is raised.

    Opens up to `pool` connections for writing and half as many for reading, on demand. Without `server_clock`,
    `database_now` returns the process's own time, which a test may make virtual. Does not check the schema;
    `open_database` does.
    """

    def __init__(self, url: str, *, pool: int = POOL, seconds: float = CALL_SECONDS, server_clock: bool = True) -> None:
        readers = max(2, pool // 2)
        self._seconds = seconds
        self.clock = ServerClock()
        clock = self.clock if server_clock else None
        self._write_pool, self._read_pool = ConnectionPool(url, clock), ConnectionPool(url, clock)
        self._writers = ThreadPoolExecutor(pool, thread_name_prefix="db-writer")
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="db-reader")
        self._closing = CloseOnce(self._end)

    async def write(self, fn: Callable[[Connection], T]) -> T:
        self._closing.check_open()
        call = _WriteCall(self._write_pool, fn, time.monotonic() + self._seconds)
        outcome = await asyncio.get_running_loop().run_in_executor(self._writers, call.run)
        return outcome.unwrap()

    async def read(self, fn: Callable[[Connection], T]) -> T:
        self._closing.check_open()
        call = _ReadCall(self._read_pool, fn, time.monotonic() + self._seconds)
        outcome = await asyncio.get_running_loop().run_in_executor(self._readers, call.run)
        return outcome.unwrap()

    async def close(self) -> None:
        await self._closing.close()

    def _end(self) -> None:
        self._writers.shutdown()
        self._readers.shutdown()
        self._write_pool.close()
        self._read_pool.close()


class _Retry(Exception):
    """Nothing of this attempt was stored. `trouble` is the error to return if there is no time for another."""

    def __init__(self, trouble: BaseException) -> None:
        super().__init__(str(trouble))
        self.trouble = trouble


class _TransactionOpen(Exception):
    """The server has not yet ended a transaction whose connection is lost."""


class _ReadCall(Generic[T]):
    def __init__(self, pool: ConnectionPool, fn: Callable[[Connection], T], deadline: float) -> None:
        self._pool = pool
        self._fn = fn
        self._deadline = deadline

    def run(self) -> Outcome[T]:
        return _run_until(self._deadline, self._try)

    def _try(self) -> Outcome[T]:
        with _acquire(self._pool) as pooled:
            try:
                pooled.begin_read()
                return Outcome(value=self._fn(pooled.connection))
            except BaseException as error:
                pooled.roll_back(after=error)
                if pooled.lost or isinstance(cause_of(error), CONFLICTS):
                    raise _Retry(_final_error(error, writing=False)) from error
                return Outcome(error=translate_error(error, writing=False))
            finally:
                pooled.roll_back()


class _WriteCall(Generic[T]):
    """One call of `write`, with all its attempts."""

    def __init__(self, pool: ConnectionPool, fn: Callable[[Connection], T], deadline: float) -> None:
        self._pool = pool
        self._fn = fn
        self._deadline = deadline
        self._serialized = False
        self._retried_unique = False

    def run(self) -> Outcome[T]:
        return _run_until(self._deadline, self._try)

    def _try(self) -> Outcome[T]:
        with _acquire(self._pool) as pooled, self._serialize(pooled):
            try:
                transaction = pooled.begin_write()
                value = self._fn(pooled.connection)
            except BaseException as error:  # noqa: BLE001  whatever fn raises belongs to its caller
                return self._handle_failure(pooled, error)
            return self._commit(pooled, transaction) or Outcome(value=value)

    def _commit(self, pooled: PooledConnection, transaction: WriteTransaction) -> Outcome[T] | None:
        """Commit. Return None if the transaction is durable, or the outcome that says why not. Raises _Retry."""
        try:
            return None if pooled.commit() else Outcome(error=_continued_after_failure())
        except psycopg.Error as error:
            if is_rejection(error):
                return self._handle_failure(pooled, error)
            pooled.drop()  # or the server might keep the transaction open and wait for more
            if not self._was_committed(transaction):
                raise _Retry(_final_error(error, writing=True)) from error
        return None

    def _handle_failure(self, pooled: PooledConnection, error: BaseException) -> Outcome[T]:
        """Roll back after the function or its COMMIT raised. Raise _Retry, or return the error."""
        pooled.roll_back(after=error)
        if pooled.lost:
            raise _Retry(_final_error(error, writing=True)) from error
        cause = cause_of(error)
        if isinstance(cause, CONFLICTS):
            self._serialized = True
            raise _Retry(translate_error(error, writing=True)) from error
        if isinstance(cause, errors.UniqueViolation) and not self._retried_unique:
            # Another transaction may have added the row after this snapshot. The next attempt will see it.
            self._retried_unique = True
            raise _Retry(translate_error(error, writing=True)) from error
        return Outcome(error=translate_error(error, writing=True))

    @contextlib.contextmanager
    def _serialize(self, pooled: PooledConnection) -> Iterator[None]:
        """Hold a lock that only one function in all processes has at a time, once this function had a conflict.

        Under many conflicts, functions then wait here instead of aborting one another. The lock is taken before the
        snapshot, so that its holder sees everything that the previous holder wrote.
        """
        if not self._serialized:
            yield
            return
        try:
            pooled.driver.execute("SELECT pg_advisory_lock(%s, %s)", (LOCK_CLASS, SERIALIZED_WRITES))
        except psycopg.Error as error:
            raise _Retry(_final_error(error, writing=True)) from error
        try:
            yield
        finally:
            with contextlib.suppress(psycopg.Error):  # a lost connection: the server releases the lock
                pooled.driver.execute("SELECT pg_advisory_unlock(%s, %s)", (LOCK_CLASS, SERIALIZED_WRITES))

    def _was_committed(self, transaction: WriteTransaction) -> bool:
        """Return whether a transaction was committed whose COMMIT got no response. Raises CommitUnknown."""
        try:
            fate = _retrying(self._deadline)((psycopg.Error, _TransactionOpen), self._ask_fate, transaction)
        except (psycopg.Error, _TransactionOpen) as error:
            raise _commit_unknown() from error
        if fate is CommitFate.UNKNOWN:
            raise _commit_unknown()
        return fate is CommitFate.COMMITTED

    def _ask_fate(self, transaction: WriteTransaction) -> CommitFate:
        fate = self._pool.read_fate(transaction)
        if fate is CommitFate.OPEN:
            raise _TransactionOpen
        return fate


@contextlib.contextmanager
def _acquire(pool: ConnectionPool) -> Iterator[PooledConnection]:
    try:
        pooled = pool.acquire()
    except DatabaseError as trouble:
        if not is_transient(trouble):
            raise
        raise _Retry(trouble) from trouble
    try:
        yield pooled
    finally:
        pool.release(pooled)


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
    """Return a caller that retries until the deadline, after growing waits."""
    return RetryingCaller(
        attempts=None,
        timeout=deadline - time.monotonic(),
        wait_initial=FIRST_WAIT,
        wait_jitter=WAIT_SPREAD,
        wait_max=LONGEST_WAIT,
    )


def _final_error(error: BaseException, *, writing: bool) -> BaseException:
    """Return the error for a lost connection, in case no retry succeeds."""
    translated = translate_error(error, writing=writing)
    if isinstance(translated, DatabaseError):
        return translated
    lost = DatabaseUnreachable(
        "The connection to PostgreSQL was lost.",
        why=str(cause_of(error)).strip() or "No reason was given.",
        fix="Nothing was stored. Try again when the server is back.",
    )
    lost.__cause__ = error
    return lost


def _continued_after_failure() -> DatabaseError:
    return DatabaseError(
        "A function continued after one of its statements had failed.",
        why="PostgreSQL then rolls back the whole transaction; nothing was stored.",
        fix="Put statements that may fail into `with connection.begin_nested():`.",
    )


def _pool_exhausted() -> DatabaseBusy:
    return DatabaseBusy(
        "The database is too busy for this.",
        why="All connections were in use for too long.",
        fix="Try again; look for long transactions in pg_stat_activity.",
    )


def _commit_unknown() -> CommitUnknown:
    return CommitUnknown(
        "It is unknown whether this was stored.",
        why="The connection to PostgreSQL was lost during the commit.",
        fix="Check whether it was stored before you try again.",
    )
