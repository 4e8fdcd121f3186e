"""PostgreSQL connections without automatic transactions.

The driver runs in autocommit mode and SQLAlchemy sends no BEGIN of its own. This module sends BEGIN and COMMIT straight
to the driver, to know when COMMIT was sent and whether it got a response.
"""

from __future__ import annotations

import contextlib
import enum
from collections import deque
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, InvalidRequestError
from sqlalchemy.pool import NullPool

from crucible.control.db.clock import SERVER, ServerClock
from crucible.control.db.postgres.failures import breaks_connection, cannot_connect, cause_of

Driver: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

PARAMETERS: Final = "format"
"""Positional, as on SQLite, because a Statement needs that."""
STATEMENT_SECONDS = 10
LOCK_SECONDS = 5
IDLE_SECONDS = 30
"""Time after which the server ends the transaction of a paused process, which may hold row locks."""
CONNECT_SECONDS = 5

_DEFAULTS = {
    "application_name": "crucible",
    "connect_timeout": CONNECT_SECONDS,
    # Notice within about ten seconds that a server has vanished without closing the connection.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "target_session_attrs": "read-write",
}
_SETTINGS = (
    f"SET statement_timeout = '{STATEMENT_SECONDS}s'",
    f"SET lock_timeout = '{LOCK_SECONDS}s'",
    f"SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'",
    # A COMMIT that returns is durable, whatever the server's default. A stricter default stays.
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
    # A serializable transaction locks the pages that it reads through an index, but a whole table in a sequential scan.
    # The high cost that the planner then gives to scans must not trigger JIT compilation.
    "SET enable_seqscan = off",
    "SET jit = off",
)
_CLOCK = "extract(epoch FROM clock_timestamp())::float8"
_BEGIN_WRITE = f"BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE; SELECT pg_current_xact_id()::text, {_CLOCK}"
_BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


def connect(url: str) -> Driver:
    """Open a connection in autocommit mode. Raises psycopg.OperationalError."""
    driver = psycopg.connect(**connect_arguments(url))
    driver.execute(";".join(_SETTINGS), prepare=False)
    return driver


def connect_arguments(url: str) -> dict[str, Any]:
    """Return the URL's arguments, with our timeouts as defaults. They include the password, so never log them."""
    return {**_DEFAULTS, **conninfo_to_dict(url), "autocommit": True}


def make_engine(url: str) -> Engine:
    """Return an engine, which caches compiled statements for all its connections. Opens no connection."""
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: connect(url),
        poolclass=NullPool,
        pool_reset_on_return=None,
        paramstyle=PARAMETERS,
    )
    event.listen(engine, "commit", _refuse_commit)
    event.listen(engine, "rollback", _refuse_commit)
    return engine


def driver_of(connection: Connection) -> Driver:
    return cast("Driver", connection.connection.driver_connection)


@dataclass(frozen=True)
class WriteTransaction:
    """A transaction that writes. `server_mark` changes when the server crashes or a replica takes over."""

    xid: str
    server_mark: str | None


@dataclass
class PooledConnection:
    """One connection of a pool, with the server mark read when it was opened."""

    connection: Connection
    driver: Driver
    server_mark: str | None
    clock: ServerClock | None

    @property
    def lost(self) -> bool:
        return self.driver.closed

    def begin_write(self) -> WriteTransaction:
        cursor = self.driver.execute(_BEGIN_WRITE, prepare=False)
        cursor.nextset()
        xid, now = cast("tuple[str, float]", cursor.fetchone())
        self.set_clock(now)
        return WriteTransaction(xid, self.server_mark)

    def begin_read(self) -> None:
        self.driver.execute(_BEGIN_READ, prepare=False)

    def set_clock(self, server_now: float) -> None:
        if self.clock is not None:
            self.connection.info[SERVER] = self.clock.record_server_time(server_now)

    def commit(self) -> bool:
        """Return whether the transaction was committed. After a failed statement the server rolls back instead."""
        return self.driver.execute("COMMIT", prepare=False).statusmessage == "COMMIT"

    def roll_back(self, after: BaseException | None = None) -> None:
        """Roll back. Drop the connection if that fails, or if the error `after` has broken it."""
        forget_transaction(self.connection)
        if after is not None and breaks_connection(after):
            self.drop()
        try:
            if not self.lost and self.driver.info.transaction_status != TransactionStatus.IDLE:
                self.driver.execute("ROLLBACK", prepare=False)
        except psycopg.Error:
            self.drop()

    def drop(self) -> None:
        """Close the driver's connection, so that the server ends its transaction. It counts as lost from then on."""
        with contextlib.suppress(psycopg.Error):
            self.driver.close()

    def close(self) -> None:
        self.drop()
        self.connection.invalidate()
        self.connection.close()


class ConnectionPool:
    """Open connections, each used by one thread at a time. Grows to the number of threads that use it."""

    def __init__(self, url: str, clock: ServerClock | None) -> None:
        self._url = url
        self._clock = clock
        self._engine = make_engine(url)
        self._idle: deque[PooledConnection] = deque()

    def acquire(self) -> PooledConnection:
        """Return an idle connection, or a new one. Raises the errors of `cannot_connect`."""
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        try:
            return _open(self._engine, self._clock)
        except (DBAPIError, psycopg.Error) as error:
            raise cannot_connect(cause_of(error)) from error

    def release(self, pooled: PooledConnection) -> None:
        """Take a connection back, or close it if it is inside a transaction. A lost one closes the idle ones too."""
        if pooled.lost:
            pooled.close()
            self.close()
        elif pooled.driver.info.transaction_status != TransactionStatus.IDLE:
            pooled.close()
        else:
            self._idle.append(pooled)

    def read_fate(self, transaction: WriteTransaction) -> CommitFate:
        """Return how a transaction ended whose connection is lost. Raises psycopg.Error."""
        # A new connection, which has used no transaction number yet.
        with connect(self._url) as driver:
            return read_fate(driver, transaction)

    def close(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()


def _open(engine: Engine, clock: ServerClock | None) -> PooledConnection:
    connection = engine.connect()
    driver = driver_of(connection)
    pooled = PooledConnection(connection, driver, _ensure_server_mark(driver), clock)
    pooled.set_clock(cast("tuple[float]", driver.execute(f"SELECT {_CLOCK}").fetchone())[0])
    return pooled


def _ensure_server_mark(driver: Driver) -> str | None:
    """Return the server mark; add a new one if a crash has removed it."""
    mark = _read_server_mark(driver)
    if mark is None:
        with contextlib.suppress(psycopg.errors.UndefinedTable, psycopg.errors.InsufficientPrivilege):
            driver.execute("INSERT INTO server_life DEFAULT VALUES ON CONFLICT DO NOTHING")
            return _read_server_mark(driver)
    return mark


def _read_server_mark(driver: Driver) -> str | None:
    """Return the mark, which a server loses when it crashes or a replica takes over. None if there is none."""
    try:
        row = driver.execute("SELECT mark FROM server_life").fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InsufficientPrivilege):
        return None
    return None if row is None else str(row[0])


def forget_transaction(connection: Connection) -> None:
    """Reset SQLAlchemy after a function tried to commit or roll back. Sends nothing to the database."""
    transaction = connection.get_transaction()
    if transaction is not None and not transaction.is_active and not connection.invalidated:
        connection.rollback()


class CommitFate(enum.Enum):
    COMMITTED = "committed"
    NOT_COMMITTED = "not committed"
    OPEN = "open"
    UNKNOWN = "unknown"


def read_fate(driver: Driver, transaction: WriteTransaction) -> CommitFate:
    """Return how a transaction ended whose connection is lost."""
    try:
        row = driver.execute("SELECT pg_xact_status(%s::xid8)", (transaction.xid,)).fetchone()
    except psycopg.errors.InvalidParameterValue:
        return CommitFate.NOT_COMMITTED  # the server has not reached this number, so it has lost the transaction
    mark = transaction.server_mark
    match row:
        case ("aborted",):
            return CommitFate.NOT_COMMITTED
        case ("in progress",):
            return CommitFate.OPEN
        # After a crash, the number of a lost transaction may be reused by another one that commits.
        case ("committed",) if mark is not None and mark == _read_server_mark(driver):
            return CommitFate.COMMITTED
    return CommitFate.UNKNOWN


def _refuse_commit(connection: Connection) -> None:
    if not connection.invalidated:  # an invalidated connection is being closed
        raise InvalidRequestError("A function given to the database must not commit or roll back; raise to undo.")
