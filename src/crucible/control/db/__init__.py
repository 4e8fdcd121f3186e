"""The database: its port `Db`, the implementations, and `open_database`."""

from crucible.control.db.migrate import open_database
from crucible.control.db.port import (
    DamagedDatabase,
    DatabaseBusy,
    DatabaseClosed,
    DatabaseError,
    DatabaseLost,
    DatabaseMissing,
    Db,
    DiskFull,
    NetworkFileSystem,
    NewerDatabase,
    OlderDatabase,
)
from crucible.control.db.sqlite.database import SqliteDb
from crucible.control.db.sqlite.inline import InlineDb

__all__ = [
    "DamagedDatabase",
    "DatabaseBusy",
    "DatabaseClosed",
    "DatabaseError",
    "DatabaseLost",
    "DatabaseMissing",
    "Db",
    "DiskFull",
    "InlineDb",
    "NetworkFileSystem",
    "NewerDatabase",
    "OlderDatabase",
    "SqliteDb",
    "open_database",
]
