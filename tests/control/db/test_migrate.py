from __future__ import annotations

import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect

from crucible.control.db import (
    DamagedDatabase,
    DatabaseError,
    NetworkFileSystem,
    NewerDatabase,
    open_database,
)
from crucible.control.db.migrate import MIGRATIONS_FOLDER, Migrations, upgrade_schema
from crucible.control.db.migrations import REVISIONS, SCHEMA_VERSION
from crucible.control.db.schema import metadata
from crucible.control.db.sqlite.connection import close_connection, driver_of, open_writer

OPEN = "import sys; from crucible.control.db import open_database; open_database(sys.argv[1])"


def schema_made_by(make: Callable[[Connection], None], path: Path) -> set[tuple[object, ...]]:
    connection = open_writer(str(path))
    driver = driver_of(connection)
    driver.execute("BEGIN IMMEDIATE")
    make(connection)
    driver.execute("COMMIT")
    close_connection(connection)
    return schema_of(path)


def schema_of(path: Path) -> set[tuple[object, ...]]:
    """Every column, key and index; the order of columns aside."""
    found: set[tuple[object, ...]] = set()
    with closing(sqlite3.connect(path)) as driver:
        for kind, name, table, sql in driver.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall():
            if kind == "table":
                found.add((name, "AUTOINCREMENT" in sql))
                found |= {(name, *column[1:]) for column in driver.execute(f"PRAGMA table_info({name})")}
                found |= {(name, *key[2:]) for key in driver.execute(f"PRAGMA foreign_key_list({name})")}
            else:
                parts = tuple(part[2] for part in driver.execute(f"PRAGMA index_info({name})"))
                found.add((table, name, parts, re.sub(r"\s+", " ", sql or "")))
    return found


def tables_of(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as driver:
        rows = driver.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {name for (name,) in rows if not name.startswith("sqlite_")}


def stamp(path: Path, revision: str) -> None:
    with closing(sqlite3.connect(path)) as driver, driver:
        driver.execute("UPDATE alembic_version SET version_num = ?", (revision,))


async def test_a_new_database_has_the_schema_and_its_version(tmp_path: Path) -> None:
    db = open_database(tmp_path / "home" / "crucible.db")
    names = await db.read(lambda c: set(inspect(c).get_table_names()))
    await db.close()
    assert names == set(metadata.tables) | {"alembic_version"}


async def test_opening_again_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "crucible.db"
    await open_database(path).close()
    before = path.read_bytes()
    await open_database(path).close()
    assert path.read_bytes() == before


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


BUILD_NOTES_ANEW = """
with op.batch_alter_table("meta") as batch:
    batch.add_column(sa.Column("comment", sa.Text))
with op.batch_alter_table("notes", recreate="always") as batch:
    batch.add_column(sa.Column("comment", sa.Text))
"""


def fill(path: Path) -> None:
    upgrade_schema(path)
    with closing(sqlite3.connect(path)) as driver, driver:
        driver.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY)")
        driver.execute("CREATE TABLE replies (note REFERENCES notes (id) ON DELETE CASCADE)")
        driver.execute("INSERT INTO notes VALUES (1)")
        driver.execute("INSERT INTO replies VALUES (1)")


def contents(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as driver:
        return [
            *driver.execute("SELECT * FROM notes"),
            *driver.execute("SELECT * FROM replies"),
            *driver.execute("SELECT * FROM alembic_version"),
        ]


def test_an_older_database_is_brought_up_and_keeps_its_rows(
    tmp_path: Path, next_steps: Callable[[str], Migrations]
) -> None:
    path = tmp_path / "crucible.db"
    fill(path)
    upgrade_schema(path, next_steps(BUILD_NOTES_ANEW))
    assert contents(path) == [(1, None), (1,), ("next",)]


@pytest.mark.parametrize(
    ("then", "error"),
    [("raise LookupError('half way')", LookupError), ("op.execute('DELETE FROM notes')", DatabaseError)],
)
def test_a_revision_that_fails_leaves_the_database_as_it_was(
    tmp_path: Path, next_steps: Callable[[str], Migrations], then: str, error: type[Exception]
) -> None:
    path = tmp_path / "crucible.db"
    fill(path)
    with pytest.raises(error):
        upgrade_schema(path, next_steps(BUILD_NOTES_ANEW + then))
    assert contents(path) == [(1,), (1,), (REVISIONS[-1],)]
    upgrade_schema(path)


def test_the_list_of_revisions_is_the_folder_s() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS_FOLDER))
    scripts = ScriptDirectory.from_config(config)
    assert [script.revision for script in scripts.walk_revisions()][::-1] == list(REVISIONS)
    assert scripts.get_current_head() == SCHEMA_VERSION


def test_file_and_folder_are_private(tmp_path: Path) -> None:
    path = tmp_path / "home" / "crucible.db"
    subprocess.run([sys.executable, "-c", OPEN, path], check=True, timeout=60, umask=0)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}


@pytest.mark.parametrize("revision", ["9999", "abc"])
def test_a_newer_database_is_refused_and_left_alone(tmp_path: Path, revision: str) -> None:
    path = tmp_path / "crucible.db"
    upgrade_schema(path)
    stamp(path, revision)
    before = path.read_bytes()
    with pytest.raises(NewerDatabase, match="written by a newer Crucible") as refusal:
        open_database(path)
    assert "crucible-ml" in refusal.value.fix
    assert path.read_bytes() == before


def test_a_database_of_someone_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "browser.db"
    with closing(sqlite3.connect(path)) as driver, driver:
        driver.execute("CREATE TABLE bookmarks (url)")
    with pytest.raises(DamagedDatabase, match="not created by Crucible"):
        open_database(path)
    assert tables_of(path) == {"bookmarks"}


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "crucible.db"
    path.write_text("Dear diary, " * 1000)
    with pytest.raises(DamagedDatabase):
        open_database(path)
    assert path.read_text().startswith("Dear diary")


def test_a_place_that_cannot_be_written_is_told_with_its_fix(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DatabaseError) as failure:
        open_database(tmp_path / "file" / "crucible.db")
    assert "CRUCIBLE_HOME" in failure.value.fix


def test_a_network_file_system_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(NetworkFileSystem):
        open_database(tmp_path / "home" / "crucible.db", mounts="27 1 254:0 / / rw - nfs4 server:/ rw\n")
    assert not (tmp_path / "home").exists()


def test_several_that_open_at_once_make_one_database(tmp_path: Path) -> None:
    path = tmp_path / "home" / "crucible.db"
    openers = [
        subprocess.Popen([sys.executable, "-c", OPEN, path], stderr=subprocess.PIPE, text=True) for _ in range(4)
    ]
    errors = [opener.communicate(timeout=60)[1] for opener in openers]
    assert [opener.returncode for opener in openers] == [0] * 4, errors
    assert tables_of(path) == set(metadata.tables) | {"alembic_version"}
