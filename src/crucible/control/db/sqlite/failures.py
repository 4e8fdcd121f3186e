"""Translate SQLite's result codes into the errors of `port.py`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError

from crucible.control.db.port import DamagedDatabase, DatabaseBusy, DatabaseError, DiskFull
from crucible.core.errors import Trouble

PRIMARY = 0xFF
"""Mask of the primary result code: the low byte of an extended one."""

FULL = frozenset({sqlite3.SQLITE_FULL})
BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
DEVICE = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})


def translate_error(error: BaseException) -> BaseException:
    """Return the typed error for a failure of the database itself, or `error` if it is something else.

    An unknown error of a statement stays SQLAlchemy's; one that the driver raised at BEGIN or COMMIT is always typed.
    """
    if isinstance(error, sqlite3.IntegrityError):  # a deferred constraint, found by COMMIT
        return IntegrityError("COMMIT", None, error)
    cause = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(cause, sqlite3.Error):
        return error
    trouble = _known_error(cause) or (_unknown_error(cause) if cause is error else None)
    if trouble is None:
        return error
    trouble.__cause__ = error
    return trouble


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise the typed error in place of the driver's."""
    try:
        yield
    except (sqlite3.Error, DBAPIError) as error:
        raise translate_error(error) from error


def _known_error(error: sqlite3.Error) -> Trouble | None:
    code: int = getattr(error, "sqlite_errorcode", 0)  # missing if the driver itself raised, without SQLite
    primary = code & PRIMARY
    # SQLite reports a full disk as FULL, except when the shared memory of the WAL cannot grow.
    if primary in FULL or code == sqlite3.SQLITE_IOERR_SHMSIZE:
        return DiskFull(
            "The disk that holds the database is full.",
            why="Nothing of this write was stored.",
            fix="Free some space there, or move the state folder to another disk and set CRUCIBLE_HOME.",
        )
    if primary in BUSY:
        return DatabaseBusy(
            "The database is locked.",
            why="Another process has it open, or wrote to it for too long.",
            fix="If a Crucible server runs on it, use its commands (for example `crucible db backup`), or stop it with "
            "`crucible down`. Otherwise close the program that has the file open.",
        )
    if primary in DAMAGED:
        return DamagedDatabase(
            "The database file cannot be read.", why=f"SQLite says: {error}.", fix="Restore a backup."
        )
    if primary in DEVICE:
        return _unknown_error(error)
    return None


def _unknown_error(error: sqlite3.Error) -> DatabaseError:
    return DatabaseError(
        "The database file cannot be used.",
        why=f"SQLite says: {error} ({getattr(error, 'sqlite_errorname', 'no code')}).",
        fix="Check whether CRUCIBLE_HOME is on a failing or read-only disk. `crucible doctor` checks this too.",
    )
