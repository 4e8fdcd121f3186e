"""SQLite connections without automatic transactions.

With the driver's defaults, releasing a savepoint commits. So the driver runs with isolation_level=None, SQLAlchemy
sends no BEGIN of its own, and transaction.py sends BEGIN, SAVEPOINT, RELEASE and COMMIT straight to the driver. A
function that calls `connection.commit()` or `rollback()` gets an error before it ends the transaction of its group.
"""

from __future__ import annotations

import sqlite3
from typing import cast
from urllib.parse import quote

from sqlalchemy import URL, Connection, create_engine, event
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.pool import NullPool
from stamina import RetryingCaller

BUSY_MS = 5_000
MEMORY = "memory:"
CACHE_KIB = 16 * 1024
WAL_LIMIT = 64 * 1024 * 1024
"""Bytes to which SQLite truncates a WAL that has grown larger."""

_SHARED = (
    f"PRAGMA busy_timeout={BUSY_MS}",
    "PRAGMA foreign_keys=ON",
    "PRAGMA temp_store=MEMORY",
    f"PRAGMA cache_size=-{CACHE_KIB}",
)
_DURABLE = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA fullfsync=ON",  # macOS: a plain fsync leaves data in the drive's cache; no effect elsewhere
    f"PRAGMA journal_size_limit={WAL_LIMIT}",
)


def open_writer(path: str) -> Connection:
    """Open a connection whose COMMIT returns only after the data is on the disk."""
    return _configure(_connect(path), _DURABLE)


def open_reader(path: str) -> Connection:
    """Open a connection that refuses to write."""
    return _configure(_connect(path), ("PRAGMA query_only=ON",))


def open_volatile(path: str) -> Connection:
    """Open a connection that never syncs. Its data survives a simulated crash, but not a real one."""
    return _configure(_connect(path), ("PRAGMA synchronous=OFF", "PRAGMA journal_mode=MEMORY"))


def close_connection(connection: Connection) -> None:
    event.remove(connection.engine, "rollback", _refuse_commit)  # closing makes SQLAlchemy roll back
    connection.close()


def driver_of(connection: Connection) -> sqlite3.Connection:
    return cast(sqlite3.Connection, connection.connection.dbapi_connection)


def _connect(path: str) -> Connection:
    engine = create_engine(
        _url(path),
        poolclass=NullPool,
        # One thread opens and closes it and another uses it, but never two at once.
        connect_args={"isolation_level": None, "check_same_thread": False, "cached_statements": 512},
    )
    event.listen(engine, "commit", _refuse_commit)
    event.listen(engine, "rollback", _refuse_commit)
    return engine.connect()


def _url(path: str) -> URL:
    """Return the URL of a file, or of `memory:NAME`: a database in memory that lasts as long as a connection to it."""
    name = path.removeprefix(MEMORY)
    # unix-excl keeps the index of the WAL on the heap. In a mapped file beside the database, as by default, a write
    # to a disk that has become read-only ends the process with SIGBUS. Other processes cannot open the database then.
    query = {"vfs": "unix-excl"} if name == path else {"mode": "memory", "cache": "shared"}
    return URL.create("sqlite+pysqlite", database=f"file:{quote(name)}", query={**query, "uri": "true"})


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


# SQLite ignores busy_timeout while it switches to WAL, so the retries happen here.
_retry_when_busy = RetryingCaller(
    attempts=None, timeout=BUSY_MS / 1000, wait_initial=0.01, wait_max=0.01, wait_jitter=0
).on(_is_busy)


def _refuse_commit(connection: Connection) -> None:
    raise InvalidRequestError("A function given to the database must not commit or roll back; raise to undo.")
