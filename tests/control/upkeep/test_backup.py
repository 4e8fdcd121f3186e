from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import sqlite3
import zipfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import func, insert, select
from tests.control.fakes import START
from tests.control.harness import ControlHarness
from tests.server.openapi_contract import wrong_with_answer

from crucible.control.db import Db, open_database
from crucible.control.db import schema as t
from crucible.control.db.migrations import SCHEMA_VERSION
from crucible.control.upkeep import backup
from crucible.control.upkeep.backup import Backup, BackupExists, BackupSource, write_backup
from crucible.control.upkeep.restore import read_manifest
from crucible.core.errors import BadInput, DiskFull

DEPLOYMENT = "dep-1"


@pytest.fixture
def source(tmp_path: Path) -> BackupSource:
    return BackupSource(tmp_path / "home" / "crucible.db", DEPLOYMENT, "/the/store", "0.1.0")


@pytest.fixture
async def db(source: BackupSource) -> AsyncIterator[Db]:
    """A real database in use: one of several files, as WAL has it."""
    db = open_database(source.database)
    yield db
    await db.close()


async def put(db: Db, key: str, value: str = "x") -> None:
    await db.write(lambda conn: conn.execute(insert(t.meta).values(key=key, value=value)).rowcount)


@contextlib.contextmanager
def opened(archive: Path) -> Iterator[sqlite3.Connection]:
    """The database inside a backup."""
    folder = archive.with_suffix(".unpacked")
    with zipfile.ZipFile(archive) as packed:
        packed.extract("crucible.db", folder)
    with contextlib.closing(sqlite3.connect(folder / "crucible.db")) as connection:
        yield connection
    shutil.rmtree(folder)


async def test_a_backup_holds_the_database_and_says_what_it_is(db: Db, source: BackupSource, tmp_path: Path) -> None:
    await put(db, "colour", "green")
    target = tmp_path / "backup.zip"
    made = write_backup(source, target, START)
    assert (made.path, made.bytes, made.store) == (str(target), target.stat().st_size, "/the/store")
    assert made.sha256 == backup.file_sha256(target)
    assert target.stat().st_mode & 0o777 == 0o600
    manifest = read_manifest(target)
    assert (manifest.deployment, manifest.created_at, manifest.schema_revision) == (DEPLOYMENT, START, SCHEMA_VERSION)
    with opened(target) as copy:
        assert copy.execute("SELECT value FROM meta WHERE key = 'colour'").fetchone() == ("green",)
    assert os.listdir(tmp_path) != []
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".backup")] == []


async def test_a_backup_under_concurrent_writes_is_whole(db: Db, source: BackupSource, tmp_path: Path) -> None:
    """Each write adds two rows at once: a copy that has one without the other was torn."""
    stop = asyncio.Event()

    async def write() -> int:
        n = 0
        while not stop.is_set():
            rows = [{"key": f"{side}{n}", "value": "x" * 2000} for side in "ab"]
            await db.write(lambda conn, rows=rows: conn.execute(insert(t.meta), rows).rowcount)  # type: ignore[misc]
            n += 1
        return n

    writing = asyncio.create_task(write())
    for n in range(3):
        await asyncio.to_thread(write_backup, source, tmp_path / f"{n}.zip", START)
    stop.set()
    written = await writing
    counted = await db.read(lambda conn: conn.execute(select(func.count()).select_from(t.meta)).scalar())
    assert counted == written * 2, "the writer was not disturbed"
    for n in range(3):
        with opened(tmp_path / f"{n}.zip") as copy:
            assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            sides = copy.execute("SELECT substr(key, 1, 1), count(*) FROM meta GROUP BY 1").fetchall()
            assert len({count for _, count in sides}) <= 1


async def test_an_older_backup_is_overwritten_only_when_asked(db: Db, source: BackupSource, tmp_path: Path) -> None:
    target = tmp_path / "backup.zip"
    target.write_bytes(b"precious")
    with pytest.raises(BackupExists) as refused:
        write_backup(source, target, START)
    assert "another name" in refused.value.fix
    assert target.read_bytes() == b"precious"
    write_backup(source, target, START, overwrite=True)
    assert read_manifest(target).deployment == DEPLOYMENT


async def test_a_target_that_makes_no_sense_is_refused(db: Db, source: BackupSource, tmp_path: Path) -> None:
    for target in (tmp_path / "missing" / "backup.zip", tmp_path):
        with pytest.raises(BadInput):
            write_backup(source, target, START)
    with pytest.raises(BadInput):
        write_backup(replace(source, database=tmp_path / "none.db"), tmp_path / "backup.zip", START)
    assert not (tmp_path / "none.db").exists()


async def test_a_full_disk_is_told_and_leaves_nothing(
    db: Db, source: BackupSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(backup, "_pack", full)
    with pytest.raises(DiskFull) as told:
        write_backup(source, tmp_path / "backup.zip", START)
    assert "another disk" in told.value.fix
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


async def test_the_server_says_what_is_not_inside(
    harness: ControlHarness, db: Db, source: BackupSource, tmp_path: Path
) -> None:
    view = await Backup(harness.ports, source).make(str(tmp_path / "backup.zip"))
    assert view.path == str(tmp_path / "backup.zip")
    assert "/the/store" in view.note
    assert list(wrong_with_answer("POST /api/v1/db/backup", 200, view.model_dump_json().encode())) == []
