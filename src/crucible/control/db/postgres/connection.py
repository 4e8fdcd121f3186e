"""PostgreSQL connections whose transactions are ours alone.

The driver runs in autocommit and SQLAlchemy sends no BEGIN of its own: BEGIN and COMMIT go straight to the
driver, so that it is known when COMMIT was sent and whether it was answered.
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
"""By place, as on SQLite: every engine of ours may be handed a Statement."""
STATEMENT_SECONDS = 10
LOCK_SECONDS = 5
IDLE_SECONDS = 30
"""A transaction whose process was paused is ended by the server after this long; it holds row locks."""
CONNECT_SECONDS = 5

_DEFAULTS = {
    "application_name": "crucible",
    "connect_timeout": CONNECT_SECONDS,
    # A server that vanished without a word is noticed within this time.
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
    # Acknowledged is durable, whatever the server's default; a stricter default stays.
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
    # What a serializable transaction reads by index it locks by page, and by sequential scan as a whole table.
    # That a scan is made dear must not make the server compile it.
    "SET enable_seqscan = off",
    "SET jit = off",
)
_CLOCK = "extract(epoch FROM clock_timestamp())::float8"
_BEGIN_WRITE = f"BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE; SELECT pg_current_xact_id()::text, {_CLOCK}"
_BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


def connect(url: str) -> Driver:
    """A connection in autocommit. Raises psycopg.OperationalError."""
    driver = psycopg.connect(**connect_arguments(url))
    driver.execute(";".join(_SETTINGS), prepare=False)
    return driver


def connect_arguments(url: str) -> dict[str, Any]:
    """What the URL says, over our own deadlines. Holds the password: never to be logged."""
    return {**_DEFAULTS, **conninfo_to_dict(url), "autocommit": True}


def make_engine(url: str) -> Engine:
    """Compiles statements once for all connections; opens none."""
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
    """A writing transaction. `life` marks the time since the server last crashed."""

    xid: str
    server_mark: str | None


@dataclass
class PooledConnection:
    """One connection and what was learned when it was opened."""

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
        """Whether the transaction was committed: after a failed statement the server only ends it."""
        return self.driver.execute("COMMIT", prepare=False).statusmessage == "COMMIT"

    def roll_back(self, after: BaseException | None = None) -> None:
        """Should even this fail, or `after` be the end of the connection, it is lost."""
        forget_transaction(self.connection)
        if after is not None and breaks_connection(after):
            self.drop()
        try:
            if not self.lost and self.driver.info.transaction_status != TransactionStatus.IDLE:
                self.driver.execute("ROLLBACK", prepare=False)
        except psycopg.Error:
            self.drop()

    def drop(self) -> None:
        """The connection is lost from here on, and the server learns of it."""
        with contextlib.suppress(psycopg.Error):
            self.driver.close()

    def close(self) -> None:
        self.drop()
        self.connection.invalidate()
        self.connection.close()


class ConnectionPool:
    """Open connections, each used by one thread at a time. As many as there are threads that take one."""

    def __init__(self, url: str, clock: ServerClock | None) -> None:
        self._url = url
        self._clock = clock
        self._engine = make_engine(url)
        self._idle: deque[PooledConnection] = deque()

    def acquire(self) -> PooledConnection:
        """An idle connection, or a new one. Raises the errors of `cannot_connect`."""
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        try:
            return _open(self._engine, self._clock)
        except (DBAPIError, psycopg.Error) as error:
            raise cannot_connect(cause_of(error)) from error

    def release(self, link: PooledConnection) -> None:
        """What is in the middle of something is closed; what was lost takes the idle ones with it."""
        if link.lost:
            link.close()
            self.close()
        elif link.driver.info.transaction_status != TransactionStatus.IDLE:
            link.close()
        else:
            self._idle.append(link)

    def fate_of(self, begun: WriteTransaction) -> CommitFate:
        """Asks over a connection of its own, which has used no transaction number yet. Raises psycopg.Error."""
        with connect(self._url) as driver:
            return read_fate(driver, begun)

    def close(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()


def _open(engine: Engine, clock: ServerClock | None) -> PooledConnection:
    connection = engine.connect()
    driver = driver_of(connection)
    link = PooledConnection(connection, driver, _ensure_server_mark(driver), clock)
    link.set_clock(cast("tuple[float]", driver.execute(f"SELECT {_CLOCK}").fetchone())[0])
    return link


def _ensure_server_mark(driver: Driver) -> str | None:
    """As `_life`; after a crash a new one begins."""
    found = _read_server_mark(driver)
    if found is None:
        with contextlib.suppress(psycopg.errors.UndefinedTable, psycopg.errors.InsufficientPrivilege):
            driver.execute("INSERT INTO server_life DEFAULT VALUES ON CONFLICT DO NOTHING")
            return _read_server_mark(driver)
    return found


def _read_server_mark(driver: Driver) -> str | None:
    """The mark that a server loses when it crashes or another takes its place; None where there is none."""
    try:
        row = driver.execute("SELECT mark FROM server_life").fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InsufficientPrivilege):
        return None
    return None if row is None else str(row[0])


def forget_transaction(connection: Connection) -> None:
    """Let SQLAlchemy forget a transaction that a function tried to end; this sends nothing."""
    transaction = connection.get_transaction()
    if transaction is not None and not transaction.is_active and not connection.invalidated:
        connection.rollback()


class CommitFate(enum.Enum):
    COMMITTED = "committed"
    NOT_COMMITTED = "not committed"
    OPEN = "open"
    UNKNOWN = "unknown"


def read_fate(driver: Driver, begun: WriteTransaction) -> CommitFate:
    """How a transaction ended whose connection is lost."""
    try:
        row = driver.execute("SELECT pg_xact_status(%s::xid8)", (begun.xid,)).fetchone()
    except psycopg.errors.InvalidParameterValue:
        return CommitFate.NOT_COMMITTED  # the server has not come that far: it knows nothing of this transaction
    match row:
        case ("aborted",):
            return CommitFate.NOT_COMMITTED
        case ("in progress",):
            return CommitFate.OPEN
        # After a crash the number of a transaction that was lost may be given to another one, which commits.
        case ("committed",) if begun.server_mark is not None and begun.server_mark == _read_server_mark(driver):
            return CommitFate.COMMITTED
    return CommitFate.UNKNOWN


def _refuse_commit(connection: Connection) -> None:
    if not connection.invalidated:  # that one is being closed
        raise InvalidRequestError("A function given to the database must not commit or roll back; raise to undo.")
