"""The one way to the database, and what can go wrong on it.

Trouble
├── DiskFull                 no room left where the database is (core's own; nothing of the write remains)
└── DatabaseError            any other failure of the database itself
    ├── DatabaseBusy         another process held the write lock for too long
    ├── DatabaseClosed       used after close()
    ├── DamagedDatabase      the file is no database, or not one of ours, or its pages are broken
    ├── NewerDatabase        written by a newer Crucible
    ├── OlderDatabase        written by a development version, from before 0.1.0
    └── NetworkFileSystem    the file would lie where locks and syncs cannot be trusted
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

    A function only executes statements and returns plain values (never an open Result). It may be run
    again from the start, so it keeps nothing outside the database, and it neither commits nor rolls
    back: to undo its work it raises. What it raises reaches the caller unchanged (IntegrityError too),
    except that failures of the database come as the errors of this module.
    """

    async def write(self, fn: Callable[[Connection], T]) -> T:
        """Return what `fn` returned, after its changes are durable.

        A cancelled write may or may not have happened, as with any answer that got lost.
        """
        ...

    async def read(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn` on one consistent snapshot that holds every write answered before; it cannot write."""
        ...

    async def close(self) -> None:
        """Finish the writes taken so far, then stop. Closing twice is fine."""
        ...


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """How a function ended, carried from the thread that ran it to the one that waits."""

    value: T | None = None
    error: BaseException | None = None

    def unwrap(self) -> T:
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # None is a T where there is no error


class DatabaseError(Trouble):
    code = "database_error"


class DatabaseBusy(DatabaseError):
    code = "database_busy"


class DatabaseClosed(DatabaseError):
    code = "database_closed"


class DamagedDatabase(DatabaseError):
    code = "damaged_database"


class NewerDatabase(DatabaseError):
    code = "newer_database"


class OlderDatabase(DatabaseError):
    code = "older_database"


class NetworkFileSystem(DatabaseError):
    code = "network_file_system"


class CloseOnce:
    """The end of a database. `end` lets go of threads and connections; it is called once, in a thread of its own."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._ended: asyncio.Future[None] | None = None

    def check_open(self) -> None:
        """Raise DatabaseClosed once the end has begun."""
        if self._ended is not None:
            raise DatabaseClosed("The database is closed.", why="The server is stopping.")

    async def close(self) -> None:
        """End the database and wait for that. Idempotent."""
        if self._ended is None:
            self._ended = asyncio.ensure_future(asyncio.to_thread(self._end))
        # Shielded: a caller that stops waiting does not cancel the end.
        await asyncio.shield(self._ended)
