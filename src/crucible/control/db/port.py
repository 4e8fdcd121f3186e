"""The interface to the database, and its errors.

Trouble
├── DiskFull                 no space left for the database (defined in core; nothing of the write remains)
└── DatabaseError            any other failure of the database itself
    ├── DatabaseBusy         another process has the file open, or wrote to it for too long
    ├── DatabaseClosed       used after close()
    ├── DatabaseLost         its file was removed or replaced while it was open
    ├── DatabaseMissing      the database is gone or empty, and the store beside it is not
    ├── DamagedDatabase      the file is not a database, not Crucible's, or corrupted
    ├── NewerDatabase        written by a newer Crucible
    ├── OlderDatabase        written by a development version from before 0.1.0
    └── NetworkFileSystem    the file is on a file system whose locks and syncs cannot be trusted
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from sqlalchemy import Connection

from crucible.core.errors import DiskFull, Trouble

__all__ = [
    "CloseOnce",
    "DamagedDatabase",
    "DatabaseBusy",
    "DatabaseClosed",
    "DatabaseError",
    "DatabaseLost",
    "DatabaseMissing",
    "Db",
    "DiskFull",
    "NetworkFileSystem",
    "NewerDatabase",
    "OlderDatabase",
    "Outcome",
]

T = TypeVar("T")


class Db(Protocol):
    """Runs plain functions of a Connection, each in a transaction of its own.

    A function only executes statements and returns plain values (never an open Result). It may be run again from the
    start, so it keeps no state outside the database. It neither commits nor rolls back; to undo its work it raises.
    Its exceptions reach the caller unchanged (IntegrityError too); failures of the database become errors of this
    module.
    """

    async def write(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn` and return its value, after its changes are durable.

        A cancelled write may or may not have happened, as with any lost response.
        """
        ...

    async def read(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn` on one consistent snapshot, which includes every write that has returned. `fn` cannot write."""
        ...

    async def close(self) -> None:
        """Finish the accepted writes, then stop. Idempotent."""
        ...


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """The value or exception of a function, passed from the thread that ran it to the caller."""

    value: T | None = None
    error: BaseException | None = None

    def unwrap(self) -> T:
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # without an error the value is a T


class DatabaseError(Trouble):
    code = "database_error"


class DatabaseBusy(DatabaseError):
    code = "database_busy"


class DatabaseClosed(DatabaseError):
    code = "database_closed"


class DatabaseLost(DatabaseError):
    code = "database_lost"


class DatabaseMissing(DatabaseError):
    code = "database_missing"


class DamagedDatabase(DatabaseError):
    code = "damaged_database"


class NewerDatabase(DatabaseError):
    code = "newer_database"


class OlderDatabase(DatabaseError):
    code = "older_database"


class NetworkFileSystem(DatabaseError):
    code = "network_file_system"


class CloseOnce:
    """Closes a database once. `end` releases its threads and connections; it runs in a thread of its own."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._ended: asyncio.Future[None] | None = None

    def check_open(self) -> None:
        """Raise DatabaseClosed if closing has begun."""
        if self._ended is not None:
            raise DatabaseClosed("The database is closed.", why="The server is stopping.")

    async def close(self) -> None:
        """Close the database and wait until it is closed. Idempotent."""
        if self._ended is None:
            self._ended = asyncio.ensure_future(asyncio.to_thread(self._end))
        # Shielded: cancelling a caller must not cancel the closing that others wait for.
        await asyncio.shield(self._ended)
