"""Databases of version 0.1.0, with rows in them, become what this version's schema says and keep every row."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.sql import SQL, Identifier
from sqlalchemy import create_engine
from tests.control.db.postgres.test_schema import EVERYTHING, ask, do
from tests.control.db.test_migrate import schema_made_by, schema_of, stamp
from tests.postgres import Server
from tests.state_0_1_0.databases import put_postgres, put_sqlite

from crucible.control.db import OlderDatabase, open_database
from crucible.control.db.migrate import create_schema, upgrade_schema
from crucible.control.db.migrations import EARLIER, SCHEMA_VERSION
from crucible.control.db.postgres import schema

Rows = dict[str, list[dict[str, object]]]
"""By table."""


def sqlite_rows(path: Path) -> Rows:
    with closing(sqlite3.connect(path)) as driver:
        driver.row_factory = sqlite3.Row
        names = [row["name"] for row in driver.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            name: [dict(row) for row in driver.execute(f"SELECT * FROM {name}")]
            for name in names
            if not name.startswith("sqlite_")
        }


def postgres_rows(url: str) -> Rows:
    with psycopg.connect(url, row_factory=dict_row) as driver:
        names = [
            row["tablename"] for row in driver.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        ]
        return {name: driver.execute(SQL("SELECT * FROM {}").format(Identifier(name))).fetchall() for name in names}


def check_kept(before: Rows, after: Rows) -> None:
    """Every row is there with every value; tables, columns and rows may have come."""
    assert before.pop("alembic_version") == [{"version_num": "0011"}]
    assert after["alembic_version"] == [{"version_num": SCHEMA_VERSION}]
    for name, rows in before.items():
        for row in rows:
            assert any(row.items() <= other.items() for other in after[name]), (name, row)
    for machine in after["machines"]:
        assert machine["started_at"] == machine["created_at"], "it keeps the times it has"


def test_sqlite(tmp_path: Path) -> None:
    path = put_sqlite(tmp_path)
    before = sqlite_rows(path)
    assert len(before["jobs"]) > 10
    upgrade_schema(path)
    check_kept(before, sqlite_rows(path))
    assert schema_of(path) == schema_made_by(create_schema, tmp_path / "new.db")


def test_postgres(postgres_server: Server) -> None:
    with postgres_server.database() as url:
        put_postgres(url)
        before = postgres_rows(url)
        assert len(before["jobs"]) == 1
        schema.upgrade_schema(url)
        check_kept(before, postgres_rows(url))
        upgraded = set(ask(url, EVERYTHING))
    assert upgraded == everything_made_by_create(postgres_server)
    assert {"column", "index", "constraint", "trigger", "function"} == {kind for kind, *_ in upgraded}


def everything_made_by_create(server: Server) -> set[tuple[object, ...]]:
    with server.database() as url:
        engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        with engine.begin() as connection:
            create_schema(connection)
        engine.dispose()
        return set(ask(url, EVERYTHING))


@pytest.mark.parametrize("revision", [EARLIER[0], EARLIER[-1]])
def test_sqlite_of_a_development_version_is_refused_and_left_alone(tmp_path: Path, revision: str) -> None:
    path = tmp_path / "crucible.db"
    upgrade_schema(path)
    stamp(path, revision)
    before = path.read_bytes()
    with pytest.raises(OlderDatabase, match=r"from before 0\.1\.0") as refusal:
        open_database(path)
    assert "Start version 0.1.0 on it once" in refusal.value.fix
    assert path.read_bytes() == before


def test_postgres_of_a_development_version_is_refused(postgres_url: str) -> None:
    schema.upgrade_schema(postgres_url)
    do(postgres_url, f"UPDATE alembic_version SET version_num = '{EARLIER[-1]}'")
    with pytest.raises(OlderDatabase, match=r"from before 0\.1\.0"):
        open_database(postgres_url)
