"""Backup and restore of a PostgreSQL database, by its own programs, on a real server."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from sqlalchemy import delete, insert, select
from tests.control.upkeep.test_backup import DEPLOYMENT, put

from crucible.control.db import Db, open_database
from crucible.control.db import schema as t
from crucible.control.upkeep import postgres_tools, restore_hold
from crucible.control.upkeep.backup import BackupSource, write_backup
from crucible.control.upkeep.postgres_tools import without_password
from crucible.control.upkeep.restore import BadBackup, InUse, confirm_offline, read_manifest, restore
from crucible.core.errors import Trouble

pytestmark = pytest.mark.enable_socket


@pytest.mark.parametrize(
    ("url", "bare", "password"),
    [
        ("postgresql://me:s3cret@host:5432/db", "postgresql://me@host:5432/db", "s3cret"),
        ("postgresql://me:p%40ss@host/db?sslmode=require", "postgresql://me@host/db?sslmode=require", "p@ss"),
        ("postgresql://host/db", "postgresql://host/db", None),
    ],
)
def test_passwords_are_not_shown_on_a_command_line(url: str, bare: str, password: str | None) -> None:
    assert without_password(url) == (bare, password)


def test_a_missing_program_is_told_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Trouble) as told:
        postgres_tools.dump("postgresql://nowhere/db", tmp_path / "dump")
    assert "postgresql-client" in told.value.fix


@pytest.fixture
def source(postgres_url: str) -> BackupSource:
    if not (shutil.which("pg_dump") and shutil.which("pg_restore") and shutil.which("psql")):
        pytest.skip("PostgreSQL's client programs are not installed")
    return BackupSource(postgres_url, DEPLOYMENT, "s3://bucket", "0.1.0")


async def values(db: Db) -> dict[str, str]:
    rows = await db.read(lambda conn: conn.execute(select(t.meta)).all())
    return {row.key: row.value for row in rows}


async def test_a_backup_comes_back_held_and_can_be_confirmed(source: BackupSource, tmp_path: Path) -> None:
    db = open_database(source.database)
    await put(db, "colour", "green")
    archive = tmp_path / "backup.zip"
    write_backup(source, archive, time.time())
    assert read_manifest(archive).member == "crucible.pgdump"
    await put(db, "shape", "round")
    await db.close()

    done = restore(source, archive, time.time())
    assert done.kept is not None
    assert Path(done.kept).stat().st_size > 0
    db = open_database(source.database)
    found = await values(db)
    assert found["colour"] == "green"
    assert "shape" not in found
    assert await db.read(restore_hold.is_held)
    await put(db, "size", "large")  # it still takes writes
    await db.close()
    assert confirm_offline(source, time.time()).restored_at is not None


async def test_a_database_in_use_is_not_replaced(source: BackupSource, tmp_path: Path) -> None:
    db = open_database(source.database)
    archive = tmp_path / "backup.zip"
    write_backup(source, archive, time.time())
    role = {"name": "scheduler", "holder": "w1", "epoch": 1, "until": time.time() + 1000}
    await db.write(lambda conn: conn.execute(insert(t.roles).values(role)).rowcount)
    with pytest.raises(InUse):
        restore(source, archive, time.time())
    with pytest.raises(InUse):
        restore(source, archive, time.time(), force=True)  # which is about whose backup it is
    assert not await db.read(restore_hold.is_held)
    await db.write(lambda conn: conn.execute(delete(t.roles)).rowcount)
    await db.close()
    restore(source, archive, time.time())


async def test_a_database_that_only_seems_in_use_is_replaced_when_asked(source: BackupSource, tmp_path: Path) -> None:
    db = open_database(source.database)
    archive = tmp_path / "backup.zip"
    write_backup(source, archive, time.time())
    role = {"name": "scheduler", "holder": "w1", "epoch": 1, "until": time.time() + 1000}
    await db.write(lambda conn: conn.execute(insert(t.roles).values(role)).rowcount)
    await db.close()
    restore(source, archive, time.time(), in_use=True)


@pytest.mark.parametrize("off", [-86400.0, 0.0])
async def test_the_restore_is_dated_by_the_servers_clock(source: BackupSource, tmp_path: Path, off: float) -> None:
    """Machines are dated by it too; the clock of the computer that restores may differ."""
    db = open_database(source.database)
    archive = tmp_path / "backup.zip"
    write_backup(source, archive, time.time() + off)
    await db.close()
    before = time.time()
    restore(source, archive, before + off)
    db = open_database(source.database)
    restored_at = await db.read(restore_hold.unconfirmed_since)
    await db.close()
    assert restored_at is not None
    assert before - 5 <= restored_at <= time.time() + 5, "the server of this test is on this computer"


async def test_a_sqlite_backup_is_refused(source: BackupSource, tmp_path: Path) -> None:
    other = BackupSource(tmp_path / "home" / "crucible.db", DEPLOYMENT, "", "0.1.0")
    db = open_database(other.database)
    await db.close()
    archive = tmp_path / "backup.zip"
    write_backup(other, archive, time.time())
    with pytest.raises(BadBackup) as refused:
        restore(source, archive, time.time())
    assert "another kind of database" in refused.value.what
