"""The schema on PostgreSQL: made once, brought up to date once, refused where it is not ours."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import inspect

from crucible.control.db import DamagedDatabase, DatabaseError, NewerDatabase, open_database
from crucible.control.db.migrate import MIGRATIONS_FOLDER, Migrations
from crucible.control.db.migrations import REVISIONS
from crucible.control.db.postgres.failures import DatabaseRefused, DatabaseUnreachable
from crucible.control.db.postgres.schema import upgrade_schema
from crucible.control.db.schema import metadata

OPEN = "import sys; from crucible.control.db import open_database; open_database(sys.argv[1])"
EVERYTHING = """
SELECT 'column', table_name || '.' || column_name, data_type || coalesce(column_default, '') || is_nullable
  FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT 'constraint', conname, pg_get_constraintdef(oid) FROM pg_constraint
  WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT 'trigger', tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT 'function', proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace
"""


def ask(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as driver:
        return driver.execute(query.encode()).fetchall()


def do(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as driver:
        for statement in statements:
            driver.execute(statement.encode())


def tables_of(url: str) -> set[object]:
    return {row[0] for row in ask(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}


OURS = set(metadata.tables) | {"alembic_version", "server_life"}


async def test_a_new_database_has_the_schema_and_its_version(postgres_url: str) -> None:
    db = open_database(postgres_url)
    assert await db.read(lambda c: set(inspect(c).get_table_names())) == OURS
    await db.close()
    assert ask(postgres_url, "SELECT * FROM alembic_version") == [(REVISIONS[-1],)]


def test_what_is_asked_before_an_empty_database_gets_tables_can_prevent_it(postgres_url: str) -> None:
    def refuse() -> None:
        raise DatabaseError("not here", fix="")

    with pytest.raises(DatabaseError, match="not here"):
        open_database(postgres_url, before_create=refuse)
    assert tables_of(postgres_url) == set()
    open_database(postgres_url)
    open_database(postgres_url, before_create=refuse)


def test_opening_again_changes_nothing(postgres_url: str) -> None:
    upgrade_schema(postgres_url)
    before = ask(postgres_url, EVERYTHING)
    upgrade_schema(postgres_url)
    assert ask(postgres_url, EVERYTHING) == before


def test_several_that_open_at_once_make_one_schema(postgres_url: str) -> None:
    openers = [
        subprocess.Popen([sys.executable, "-c", OPEN, postgres_url], stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    errors = [opener.communicate(timeout=60)[1] for opener in openers]
    assert [opener.returncode for opener in openers] == [0] * 4, errors
    assert tables_of(postgres_url) == OURS


@pytest.fixture
def next_steps(tmp_path: Path) -> Callable[[str], Migrations]:
    """A Crucible to come, whose next revision does what is given."""

    def steps(upgrade: str) -> Migrations:
        folder = tmp_path / "100% new"
        shutil.copytree(MIGRATIONS_FOLDER, folder)
        head = f"from alembic import op\nimport sqlalchemy as sa\nrevision, down_revision = 'next', '{REVISIONS[-1]}'\n"
        (folder / "versions" / "v9999_next.py").write_text(f"{head}def upgrade():\n{textwrap.indent(upgrade, '    ')}")
        return Migrations((*REVISIONS, "next"), folder)

    return steps


ADD = 'with op.batch_alter_table("meta") as batch:\n    batch.add_column(sa.Column("comment", sa.Text))\n'


def test_an_older_database_is_brought_up_and_keeps_its_rows(
    postgres_url: str, next_steps: Callable[[str], Migrations]
) -> None:
    upgrade_schema(postgres_url)
    do(postgres_url, "INSERT INTO meta VALUES ('k', 'v')")
    upgrade_schema(postgres_url, next_steps(ADD))
    assert ask(postgres_url, "SELECT * FROM meta") == [("k", "v", None)]
    assert ask(postgres_url, "SELECT * FROM alembic_version") == [("next",)]


def test_a_revision_that_fails_leaves_the_database_as_it_was(
    postgres_url: str, next_steps: Callable[[str], Migrations]
) -> None:
    upgrade_schema(postgres_url)
    before = ask(postgres_url, EVERYTHING)
    with pytest.raises(LookupError):
        upgrade_schema(postgres_url, next_steps(ADD + "raise LookupError('half way')"))
    assert ask(postgres_url, EVERYTHING) == before
    upgrade_schema(postgres_url)


@pytest.mark.parametrize("revision", ["9999", "abc"])
def test_a_newer_database_is_refused_and_left_alone(postgres_url: str, revision: str) -> None:
    upgrade_schema(postgres_url)
    do(postgres_url, f"UPDATE alembic_version SET version_num = '{revision}'")
    with pytest.raises(NewerDatabase, match="written by a newer Crucible") as refusal:
        open_database(postgres_url)
    assert "crucible-ml" in refusal.value.fix


def test_a_database_of_someone_else_is_refused_and_left_alone(postgres_url: str) -> None:
    do(postgres_url, "CREATE TABLE bookmarks (url text)")
    with pytest.raises(DamagedDatabase, match="not Crucible's"):
        open_database(postgres_url)
    assert tables_of(postgres_url) == {"bookmarks"}


@pytest.fixture
def limited_url(postgres_url: str) -> Iterator[str]:
    """As a user that may not make tables."""
    do(postgres_url, "CREATE ROLE limited LOGIN", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    yield postgres_url.replace("postgres@", "limited@")
    do(postgres_url, "DROP ROLE limited")


def test_a_user_that_may_not_make_tables_is_told_with_the_fix(limited_url: str) -> None:
    with pytest.raises(DatabaseRefused) as told:
        open_database(limited_url)
    assert "OWNER" in told.value.fix


def test_a_server_that_is_not_there_is_told() -> None:
    with pytest.raises(DatabaseUnreachable):
        open_database("postgresql://127.0.0.1:1/crucible")


def test_both_ways_to_write_the_url_are_known(postgres_url: str) -> None:
    open_database(postgres_url.replace("postgresql://", "postgres://"))
    assert tables_of(postgres_url) == OURS


def test_a_url_that_cannot_be_read_is_told() -> None:
    with pytest.raises(DatabaseError):
        open_database("postgresql://host:not-a-port/crucible?nonsense=1")
