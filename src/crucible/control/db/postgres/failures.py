"""What PostgreSQL's answers mean to us, and the errors that only a server can cause.

DatabaseError
├── CommitUnknown            the connection broke during COMMIT and nobody can say how it ended
├── DatabaseUnreachable      no server answers, or it is starting or stopping
├── DatabaseRefused          the server answers and does not let us in
└── ReadOnlyDatabase         the server is a replica, or was set to read only
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
    """The write happened whole or not at all, and which of the two cannot be found out.

    A function that does no harm the second time (guarded by a version, a key or a number that it checks)
    may be given to the database again. Any other is told to whoever asked for it.
    """

    code = "commit_unknown"


class DatabaseUnreachable(DatabaseError):
    code = "database_unreachable"


class DatabaseRefused(DatabaseError):
    code = "database_refused"


class ReadOnlyDatabase(DatabaseError):
    code = "read_only_database"


CONFLICTS = (errors.SerializationFailure, errors.DeadlockDetected)
"""Another transaction was in the way; nothing of ours was kept."""

_TIMEOUTS = (errors.LockNotAvailable, errors.QueryCanceled)
_STOPPING = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow)
_DAMAGED = (errors.DataCorrupted, errors.IndexCorrupted)
_READ_ONLY = (errors.ReadOnlySqlTransaction,)

_CONNECTION_STATES = ("08", "57P", "40003")
"""Connections, stops of the server, and statements whose end is not known."""

_REFUSALS = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|role .* does not exist"
    r"|database .* does not exist|permission denied|certificate|SSL|is not permitted to log in",
    re.IGNORECASE,
)
_TOO_MANY = re.compile(r"too many (clients|connections)|remaining connection slots", re.IGNORECASE)
_REPLICA = re.compile(r"session is (read-only|not read-write)|hot standby", re.IGNORECASE)


def cause_of(error: BaseException) -> BaseException:
    """The driver's own error below SQLAlchemy's; any other error as it is."""
    orig = error.orig if isinstance(error, DBAPIError) else None
    return error if orig is None else orig


def is_rejection(error: BaseException) -> bool:
    """Whether the server refused the statement, undid it and goes on: nothing of it was kept.

    Anything else that comes out of a COMMIT leaves open how that ended: no answer, one of a session that ends
    (FATAL), or one that speaks of the line, as a pooler's does.
    """
    cause = cause_of(error)
    return (
        isinstance(cause, psycopg.Error)
        and cause.diag.severity_nonlocalized == "ERROR"
        and not (cause.sqlstate or "").startswith(_CONNECTION_STATES)
    )


def breaks_connection(error: BaseException) -> bool:
    """Whether the connection cannot be used any more, whatever the driver says of it."""
    cause = cause_of(error)
    if is_rejection(cause) or not isinstance(cause, psycopg.Error):
        return False
    return cause.sqlstate is not None or isinstance(cause, psycopg.OperationalError)


def translate_error(error: BaseException, *, writing: bool) -> BaseException:
    """The typed error for a failure of the database itself; any other error as it is.

    A statement's own error (SQLAlchemy's) stays as it is; one that the driver raised at BEGIN or COMMIT is
    always typed. A write that a function tries while it reads is the function's mistake, not a replica.
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
    """Why there is no connection. The server's reason comes as text only, and never holds the password."""
    said = _error_text(error)
    if _TOO_MANY.search(said):
        return _too_many(said)
    if _REPLICA.search(said):
        return _replica(said)
    if _REFUSALS.search(said):
        return DatabaseRefused(
            "PostgreSQL does not let us in.",
            why=said,
            fix=f"Check user, password, database and TLS in {SETTING}.",
        )
    return DatabaseUnreachable(
        "PostgreSQL does not answer.", why=said, fix=f"Start it, or correct host and port in {SETTING}."
    )


def is_transient(trouble: DatabaseError) -> bool:
    """Whether the same connection attempt may succeed in a moment."""
    return isinstance(trouble, DatabaseUnreachable | DatabaseBusy | ReadOnlyDatabase)


def _known_error(error: psycopg.Error) -> Trouble | None:
    said = _error_text(error)
    match error:
        case errors.DiskFull():
            return DiskFull(
                "The disk of the PostgreSQL server is full.",
                why=f"Nothing of this write was kept: {said}",
                fix="Free some space on the server.",
            )
        case errors.TooManyConnections():
            return _too_many(said)
        case _ if isinstance(error, CONFLICTS + _TIMEOUTS):
            return DatabaseBusy(
                "The database is too busy for this.",
                why=f"Others held or changed the same rows for too long: {said}",
                fix="Try again; look for long transactions in pg_stat_activity.",
            )
        case _ if isinstance(error, _STOPPING):
            return DatabaseUnreachable("PostgreSQL is stopping or starting.", why=said, fix="Try again in a moment.")
        case _ if isinstance(error, _READ_ONLY):
            return _replica(said)
        case errors.InsufficientPrivilege():
            return DatabaseRefused(
                "PostgreSQL does not allow this.",
                why=said,
                fix=f"Let the user in {SETTING} own its database: ALTER DATABASE … OWNER TO …",
            )
        case _ if isinstance(error, _DAMAGED):
            return DamagedDatabase("PostgreSQL finds its files damaged.", why=said, fix="Restore a backup.")
    return None


def _unknown_error(error: psycopg.Error) -> DatabaseError:
    return DatabaseError(
        "PostgreSQL could not finish the transaction.",
        why=f"{_error_text(error)} ({error.sqlstate or 'no code'})",
        fix="Look into the server's log.",
    )


def _too_many(said: str) -> DatabaseBusy:
    return DatabaseBusy(
        "PostgreSQL has no connection left for us.",
        why=said,
        fix="Raise max_connections on the server, or run fewer control processes.",
    )


def _replica(said: str) -> ReadOnlyDatabase:
    return ReadOnlyDatabase("This PostgreSQL server takes no writes.", why=said, fix=f"Name the primary in {SETTING}.")


def _error_text(error: BaseException) -> str:
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return (primary or " ".join(str(error).split()) or type(error).__name__).strip()
