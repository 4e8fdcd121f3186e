"""Open the database: on a local file system, private to its owner, and with this version's schema."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from crucible.control.db.migrations import EARLIER, REVISIONS, SCHEMA_VERSION
from crucible.control.db.port import DamagedDatabase, DatabaseError, Db, DiskFull, NewerDatabase, OlderDatabase
from crucible.control.db.postgres import feed_order
from crucible.control.db.schema import PARTIAL, jobs, metadata
from crucible.control.db.sqlite.connection import close_connection, driver_of, open_writer
from crucible.control.db.sqlite.database import SqliteDb
from crucible.control.db.sqlite.failures import translate_errors
from crucible.control.db.sqlite.filesystem import mount_table, refuse_network

MIGRATIONS_FOLDER = Path(__file__).parent / "migrations"
VERSION_TABLE = "alembic_version"


def open_database(
    path: str | os.PathLike[str], *, mounts: str | None = None, before_create: Callable[[], None] = lambda: None
) -> Db:
    """Open the database; create it or upgrade its schema first where needed.

    `path` is a file for SQLite, or the URL of a PostgreSQL database (`postgresql://…`). If several processes do this at
    once, one does the work and the others wait for it. `mounts`: text of the mount table (default: the kernel's).
    `before_create` is called before a database that is missing or empty gets its tables; what it raises prevents that.
    """
    if is_postgres(path):
        return _open_postgres(str(path), before_create)
    resolved = Path(path).resolve()
    refuse_network(resolved, mount_table() if mounts is None else mounts)
    make_private(resolved)
    upgrade_schema(resolved, before_create=before_create)
    return SqliteDb(resolved)


def is_postgres(path: str | os.PathLike[str]) -> bool:
    """Return whether this is the URL of a PostgreSQL database, not a file."""
    return isinstance(path, str) and path.startswith(("postgresql://", "postgres://"))


def _open_postgres(url: str, before_create: Callable[[], None]) -> Db:
    try:
        from crucible.control.db.postgres import database, schema
    except ImportError as error:
        raise DatabaseError(
            "The driver for PostgreSQL is not installed.",
            why=f"{error}.",
            fix='pip install "crucible-ml[postgres]"',
        ) from error
    schema.upgrade_schema(url, before_create=before_create)
    return database.PostgresDb(url)


def make_private(path: Path) -> None:
    """Create the file and its folder, readable by their owner only. Existing ones stay as they are."""
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sync_folder(path.parent.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise _cannot_create(path, error) from error


@dataclass(frozen=True)
class Migrations:
    """The known revisions, oldest first, and Alembic's folder of their scripts."""

    revisions: tuple[str, ...] = REVISIONS
    folder: Path = MIGRATIONS_FOLDER

    @property
    def last(self) -> str:
        return self.revisions[-1]


ALL_MIGRATIONS = Migrations()


def upgrade_schema(
    path: Path, migrations: Migrations = ALL_MIGRATIONS, before_create: Callable[[], None] = lambda: None
) -> None:
    """Apply the missing revisions in one transaction: all of them or none."""
    with translate_errors():
        connection = open_writer(str(path))
        try:
            if revision_of(driver_of(connection), migrations) != migrations.last:
                _upgrade(connection, migrations, before_create)
        finally:
            close_connection(connection)


def revision_of(driver: sqlite3.Connection, migrations: Migrations = ALL_MIGRATIONS) -> str | None:
    """Return the database's revision, or None if it is empty. Raises as `check_revision`, or DamagedDatabase."""
    tables = {row[0] for row in driver.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return None
    if VERSION_TABLE not in tables:
        raise DamagedDatabase(
            "The database file was not created by Crucible.", fix="Set CRUCIBLE_HOME to another folder."
        )
    rows = driver.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchall()  # noqa: S608  a constant
    return check_revision(rows[0][0] if rows else None, migrations)


def check_revision(revision: str | None, migrations: Migrations) -> str:
    """Return the revision if it is known. Raises OlderDatabase or NewerDatabase."""
    if revision in EARLIER:
        raise OlderDatabase(
            "This database was written by a development version of Crucible, from before 0.1.0.",
            why=f"Its schema is {revision}; this version knows {migrations.revisions[0]} and later.",
            fix="Start version 0.1.0 on it once to upgrade it, or set CRUCIBLE_HOME to another folder.",
        )
    if revision not in migrations.revisions:
        raise NewerDatabase(
            "This database was written by a newer Crucible.",
            why=f"Its schema is {revision}; this version knows up to {migrations.last}.",
            fix="Upgrade crucible-ml or restore a backup.",
            revision=revision,
            known=migrations.last,
        )
    return revision


def _upgrade(connection: Connection, migrations: Migrations, before_create: Callable[[], None]) -> None:
    driver = driver_of(connection)
    # A migration may rebuild a table, and dropping the old one must not affect the rows that refer to it. The pragma
    # has no effect inside a transaction, so it comes first.
    driver.execute("PRAGMA foreign_keys=OFF").close()
    driver.execute("BEGIN IMMEDIATE").close()
    try:
        revision = revision_of(driver, migrations)  # read again: another process may have been faster
        if revision is None:
            before_create()
            create_schema(connection)
        elif revision != migrations.last:
            run_migrations(connection, migrations)
        _refuse_broken_references(driver)
        driver.execute("COMMIT").close()
    finally:
        if driver.in_transaction:
            driver.execute("ROLLBACK").close()


def create_schema(connection: Connection) -> None:
    """Create the newest schema in one step from the table definitions, and let Alembic record its revision.

    Tests compare it with an upgraded database of 0.1.0.
    """
    if connection.dialect.name == "postgresql":
        _mark_partial_indexes()
    metadata.create_all(connection)
    feed_order.install(connection)
    command.stamp(_config(connection, MIGRATIONS_FOLDER), SCHEMA_VERSION)


def _mark_partial_indexes() -> None:
    """Set the conditions of partial indexes, which the table definitions give for SQLite only. Idempotent."""
    for index in jobs.indexes:
        if index.name in PARTIAL:
            index.dialect_options["postgresql"]["where"] = PARTIAL[index.name]


def run_migrations(connection: Connection, migrations: Migrations = ALL_MIGRATIONS) -> None:
    """Let Alembic apply the missing revisions, inside the current transaction of `connection`."""
    command.upgrade(_config(connection, migrations.folder), migrations.last)


def _config(connection: Connection, folder: Path) -> Config:
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    if not connection.in_transaction():
        connection.begin()  # sends nothing, but without it Alembic would commit
    return config


def _refuse_broken_references(driver: sqlite3.Connection) -> None:
    broken = driver.execute("PRAGMA foreign_key_check").fetchone()
    if broken is not None:
        raise DatabaseError(
            "The database could not be upgraded to this version.",
            why=f"A row of {broken[0]} would refer to a missing row of {broken[2]}.",
            fix="Nothing was changed. Use the previous version, and report this.",
        )


def _sync_folder(folder: Path) -> None:
    """Sync the folder so that a new folder in it is durable. SQLite does this for its files only."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot_create(path: Path, error: OSError) -> DatabaseError | DiskFull:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            f"No space left to create {path}.", fix="Free some space, or set CRUCIBLE_HOME to another disk."
        )
    return DatabaseError(
        f"Cannot create {path}.",
        why=f"{error.strerror}.",
        fix="Set CRUCIBLE_HOME to a folder that you may write to.",
    )
