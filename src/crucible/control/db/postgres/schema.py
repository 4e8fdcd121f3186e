"""Upgrade the schema on PostgreSQL: the same revisions as on SQLite, applied by the first process to start."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import psycopg
import structlog
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from crucible.control.db.migrate import (
    ALL_MIGRATIONS,
    VERSION_TABLE,
    Migrations,
    check_revision,
    create_schema,
    run_migrations,
)
from crucible.control.db.port import DamagedDatabase, DatabaseError
from crucible.control.db.postgres.connection import PARAMETERS, connect
from crucible.control.db.postgres.failures import cannot_connect, cause_of, translate_error
from crucible.control.db.postgres.locks import LOCK_CLASS, MIGRATION

log = structlog.get_logger(__name__)

OLDEST = 13
"""The oldest supported major version."""
MIGRATION_SECONDS = 600


def upgrade_schema(
    url: str, migrations: Migrations = ALL_MIGRATIONS, before_create: Callable[[], None] = lambda: None
) -> None:
    """Apply the missing revisions in one transaction: all of them or none.

    If several processes do this at once, one does the work and the others wait for it. `before_create` is called
    before an empty database gets its tables; what it raises prevents that.
    """
    with open_connection(url) as connection:
        _refuse_old(connection)
        _warn_if_not_durable(connection)
        if _read_revision(connection, migrations) != migrations.last:
            connection.rollback()
            _upgrade(connection, migrations, before_create)


def _upgrade(connection: Connection, migrations: Migrations, before_create: Callable[[], None]) -> None:
    """Apply the missing revisions under a lock. Without the privileges this raises, and nothing is changed."""
    with connection.begin():
        for name in ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"):
            connection.exec_driver_sql(f"SET LOCAL {name} = '{MIGRATION_SECONDS}s'")
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s, %s)", (LOCK_CLASS, MIGRATION))
        revision = _read_revision(connection, migrations)  # read again: another process may have been faster
        if revision is None:
            before_create()
            create_schema(connection)
        elif revision != migrations.last:
            run_migrations(connection, migrations)


def _read_revision(connection: Connection, migrations: Migrations) -> str | None:
    """Return the database's revision, or None if its current schema has no tables. Raises as `check_revision`."""
    query = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    tables = set(connection.exec_driver_sql(query).scalars())
    if not tables:
        return None
    if VERSION_TABLE not in tables:
        raise DamagedDatabase(
            "The PostgreSQL database has tables that are not Crucible's.",
            fix="Create one for Crucible alone (CREATE DATABASE crucible), and use it in the setting `database`.",
        )
    row = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").first()  # noqa: S608
    return check_revision(row[0] if row else None, migrations)


def _refuse_old(connection: Connection) -> None:
    version = connection.exec_driver_sql("SHOW server_version_num").scalar_one()
    if int(version) < OLDEST * 10_000:
        raise DatabaseError(
            f"This PostgreSQL is too old ({int(version) // 10_000}).",
            fix=f"Use version {OLDEST} or newer.",
        )


def _warn_if_not_durable(connection: Connection) -> None:
    if connection.exec_driver_sql("SHOW fsync").scalar_one() == "off":
        log.warning("the database may lose what it acknowledged", why="PostgreSQL runs with fsync=off", fix="fsync=on")


@contextlib.contextmanager
def open_connection(url: str) -> Iterator[Connection]:
    try:
        connection = _engine(url).connect()
    except (DBAPIError, psycopg.Error) as error:
        raise cannot_connect(cause_of(error)) from error
    try:
        yield connection
    except (DBAPIError, psycopg.Error) as error:
        raise translate_error(error, writing=True) from error
    finally:
        connection.close()


def _engine(url: str) -> Engine:
    """Return an engine with SQLAlchemy's own transactions: under the lock, each statement sees the latest state."""

    def open_driver() -> psycopg.Connection[tuple[object, ...]]:
        driver = connect(url)
        driver.autocommit = False
        return driver

    return create_engine("postgresql+psycopg://", creator=open_driver, poolclass=NullPool, paramstyle=PARAMETERS)
