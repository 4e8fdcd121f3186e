"""SQLite connections whose transactions are ours alone.

With the driver's defaults a released savepoint commits. So the driver runs with isolation_level=None,
SQLAlchemy sends no BEGIN of its own, and BEGIN, SAVEPOINT, RELEASE and COMMIT go straight to the driver
(see transaction.py). A function that calls `connection.commit()` or `rollback()` is stopped before it
ends the transaction of the whole group.
"""

from __future__ import annotations

import sqlite3
from typing import cast

from sqlalchemy import URL, Connection, create_engine, event
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.pool import NullPool
from stamina import RetryingCaller

BUSY_MS = 5_000
MEMORY = "memory:"
CACHE_KIB = 16 * 1024
WAL_LIMIT = 64 * 1024 * 1024
"""What a WAL that once grew larger is cut back to, in bytes."""

_SHARED = (
    f"PRAGMA busy_timeout={BUSY_MS}",
    "PRAGMA foreign_keys=ON",
    "PRAGMA temp_store=MEMORY",
    f"PRAGMA cache_size=-{CACHE_KIB}",
)
_DURABLE = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA fullfsync=ON",  # macOS: a plain fsync leaves data in the drive; no effect elsewhere
    f"PRAGMA journal_size_limit={WAL_LIMIT}",
)


def open_writer(path: str) -> Connection:
    """A connection whose COMMIT returns only after the data is on the disk."""
    return _configure(_connect(path), _DURABLE)


def open_reader(path: str) -> Connection:
    """A connection that refuses to write."""
    return _configure(_connect(path), ("PRAGMA query_only=ON",))


def open_volatile(path: str) -> Connection:
    """A connection that syncs nothing: survives a simulated crash, not a real one."""
    return _configure(_connect(path), ("PRAGMA synchronous=OFF", "PRAGMA journal_mode=MEMORY"))


def close_connection(connection: Connection) -> None:
    event.remove(connection.engine, "rollback", _refuse_commit)  # SQLAlchemy ends its own idea of a transaction
    connection.close()


def driver_of(connection: Connection) -> sqlite3.Connection:
    return cast(sqlite3.Connection, connection.connection.dbapi_connection)


def _connect(path: str) -> Connection:
    engine = create_engine(
        _url(path),
        poolclass=NullPool,
        # Opened and closed by one thread, used by another, never by two at once.
        connect_args={"isolation_level": None, "check_same_thread": False, "cached_statements": 512},
    )
    event.listen(engine, "commit", _refuse_commit)
    event.listen(engine, "rollback", _refuse_commit)
    return engine.connect()


def _url(path: str) -> URL:
    """`memory:NAME` is shared by all connections of this process, and gone with the last of them."""
    name = path.removeprefix(MEMORY)
    if name == path:
        return URL.create("sqlite+pysqlite", database=path)
    return URL.create(
        "sqlite+pysqlite", database=f"file:{name}", query={"mode": "memory", "cache": "shared", "uri": "true"}
    )


def _configure(connection: Connection, pragmas: tuple[str, ...]) -> Connection:
    try:
        for pragma in _SHARED + pragmas:
            _retry_when_busy(driver_of(connection).execute, pragma).close()
    except sqlite3.Error:
        close_connection(connection)
        raise
    return connection


def _is_busy(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_BUSY


# SQLite does not wait for its busy_timeout when it switches to WAL.
_retry_when_busy = RetryingCaller(
    attempts=None, timeout=BUSY_MS / 1000, wait_initial=0.01, wait_max=0.01, wait_jitter=0
).on(_is_busy)


def _refuse_commit(connection: Connection) -> None:
    raise InvalidRequestError("A function given to the database must not commit or roll back; raise to undo.")
