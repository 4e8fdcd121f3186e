"""Translate PostgreSQL's errors into those of `port.py`, and into the errors that only a server can cause.

DatabaseError
├── CommitUnknown            the connection was lost during COMMIT, and its result cannot be determined
├── DatabaseUnreachable      no server responds, or it is starting or stopping
├── DatabaseRefused          the server denies access
└── ReadOnlyDatabase         the server is a replica, or set to read-only
"""

from __future__ import annotations

import re

import psycopg
from psycopg import errors
from sqlalchemy.exc import DBAPIError, IntegrityError

from crucible.control.db.port import DamagedDatabase, DatabaseBusy, DatabaseError, DiskFull
from crucible.core.errors import Trouble

SETTING = "the setting `database`"


class CommitUnknown(DatabaseError):
    """The write happened as a whole or not at all, but it is impossible to find out which.

    The caller may repeat an idempotent function (one that checks a version, a key or a number). For any other, it
    reports this error.
    """

    code = "commit_unknown"


class DatabaseUnreachable(DatabaseError):
    code = "database_unreachable"


class DatabaseRefused(DatabaseError):
    code = "database_refused"


class ReadOnlyDatabase(DatabaseError):
    code = "read_only_database"


CONFLICTS = (errors.SerializationFailure, errors.DeadlockDetected)
"""Errors after a conflict with another transaction. Nothing was stored."""

_TIMEOUTS = (errors.LockNotAvailable, errors.QueryCanceled)
_STOPPING = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow)
_DAMAGED = (errors.DataCorrupted, errors.IndexCorrupted)
_READ_ONLY = (errors.ReadOnlySqlTransaction,)

_CONNECTION_STATES = ("08", "57P", "40003")
"""Prefixes of SQLSTATE: connection errors, shutdowns, and statements whose completion is unknown."""

_REFUSALS = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|role .* does not exist"
    r"|database .* does not exist|permission denied|certificate|SSL|is not permitted to log in",
    re.IGNORECASE,
)
_TOO_MANY = re.compile(r"too many (clients|connections)|remaining connection slots", re.IGNORECASE)
_REPLICA = re.compile(r"session is (read-only|not read-write)|hot standby", re.IGNORECASE)


def cause_of(error: BaseException) -> BaseException:
    """Return the driver's error below SQLAlchemy's, or `error` if there is none."""
    orig = error.orig if isinstance(error, DBAPIError) else None
    return error if orig is None else orig


def is_rejection(error: BaseException) -> bool:
    """Return whether the server rejected the statement, rolled back, and keeps the session: nothing was stored.

    After any other error of a COMMIT its result is unknown: no response, the end of the session (FATAL), or an error of
    the connection, such as a pooler's.
    """
    cause = cause_of(error)
    return (
        isinstance(cause, psycopg.Error)
        and cause.diag.severity_nonlocalized == "ERROR"
        and not (cause.sqlstate or "").startswith(_CONNECTION_STATES)
    )


def breaks_connection(error: BaseException) -> bool:
    """Return whether the connection is unusable after this error, even if the driver considers it open."""
    cause = cause_of(error)
    if is_rejection(cause) or not isinstance(cause, psycopg.Error):
        return False
    return cause.sqlstate is not None or isinstance(cause, psycopg.OperationalError)


def translate_error(error: BaseException, *, writing: bool) -> BaseException:
    """Return the typed error for a failure of the database itself, or `error` if it is something else.

    An unknown error of a statement stays SQLAlchemy's; one that the driver raised at BEGIN or COMMIT is always typed. A
    write attempted by a reading function is an error of that function, not a sign of a replica.
    """
    if isinstance(error, psycopg.IntegrityError):  # a deferred constraint, found by COMMIT
        return IntegrityError("COMMIT", None, error)
    cause = cause_of(error)
    if not isinstance(cause, psycopg.Error) or (isinstance(cause, _READ_ONLY) and not writing):
        return error
    trouble = _known_error(cause) or (_unknown_error(cause) if cause is error else None)
    if trouble is None:
        return error
    trouble.__cause__ = error
    return trouble


def cannot_connect(error: BaseException) -> DatabaseError:
    """Return the error for a failed connection attempt. Its reason, the server's text, never contains the password."""
    reason = _error_text(error)
    if _TOO_MANY.search(reason):
        return _too_many(reason)
    if _REPLICA.search(reason):
        return _replica(reason)
    if _REFUSALS.search(reason):
        return DatabaseRefused(
            "PostgreSQL denies access.",
            why=reason,
            fix=f"Check the user, password, database and TLS options in {SETTING}.",
        )
    return DatabaseUnreachable(
        "PostgreSQL does not respond.", why=reason, fix=f"Start it, or correct the host and port in {SETTING}."
    )


def is_transient(trouble: DatabaseError) -> bool:
    """Return whether the same connection attempt may succeed in a moment."""
    return isinstance(trouble, DatabaseUnreachable | DatabaseBusy | ReadOnlyDatabase)


def _known_error(error: psycopg.Error) -> Trouble | None:
    reason = _error_text(error)
    match error:
        case errors.DiskFull():
            return DiskFull(
                "The disk of the PostgreSQL server is full.",
                why=f"Nothing of this write was stored: {reason}",
                fix="Free some space on the server.",
            )
        case errors.TooManyConnections():
            return _too_many(reason)
        case _ if isinstance(error, CONFLICTS + _TIMEOUTS):
            return DatabaseBusy(
                "The database is too busy for this.",
                why=f"Other transactions held or changed the same rows for too long: {reason}",
                fix="Try again; look for long transactions in pg_stat_activity.",
            )
        case _ if isinstance(error, _STOPPING):
            return DatabaseUnreachable("PostgreSQL is stopping or starting.", why=reason, fix="Try again in a moment.")
        case _ if isinstance(error, _READ_ONLY):
            return _replica(reason)
        case errors.InsufficientPrivilege():
            return DatabaseRefused(
                "PostgreSQL denies this operation.",
                why=reason,
                fix=f"Let the user in {SETTING} own its database: ALTER DATABASE … OWNER TO …",
            )
        case _ if isinstance(error, _DAMAGED):
            return DamagedDatabase("PostgreSQL reports damaged files.", why=reason, fix="Restore a backup.")
    return None


def _unknown_error(error: psycopg.Error) -> DatabaseError:
    return DatabaseError(
        "PostgreSQL could not finish the transaction.",
        why=f"{_error_text(error)} ({error.sqlstate or 'no code'})",
        fix="Check the server's log.",
    )


def _too_many(reason: str) -> DatabaseBusy:
    return DatabaseBusy(
        "PostgreSQL has no free connection.",
        why=reason,
        fix="Raise max_connections on the server, or run fewer control processes.",
    )


def _replica(reason: str) -> ReadOnlyDatabase:
    return ReadOnlyDatabase(
        "This PostgreSQL server is read-only.", why=reason, fix=f"Set the address of the primary in {SETTING}."
    )


def _error_text(error: BaseException) -> str:
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return (primary or " ".join(str(error).split()) or type(error).__name__).strip()
