from __future__ import annotations

import contextlib
import json
import sqlite3
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest
from sqlalchemy import insert
from tests.control.fakes import START
from tests.control.upkeep.test_backup import DEPLOYMENT, db, put, source

from crucible.control.db import Db, open_database
from crucible.control.db import schema as t
from crucible.control.db.port import NewerDatabase, OlderDatabase
from crucible.control.runtime.deployment_check import DeploymentCheck
from crucible.control.runtime.host_id import HostId
from crucible.control.upkeep import restore as restore_module
from crucible.control.upkeep import restore_hold
from crucible.control.upkeep.backup import MANIFEST, BackupSource, write_backup
from crucible.control.upkeep.restore import BadBackup, ForeignBackup, confirm_offline, restore
from crucible.core.errors import BadInput

__all__ = ["db", "source"]

LATER = START + 3600
NEARBY = frozenset({"local"})
HERE, THERE = HostId("m1", "desk", "/var/crucible"), HostId("m2", "rack", "/srv/crucible")


@pytest.fixture
async def archive(source: BackupSource, tmp_path: Path) -> Path:
    """A backup with a row in it; another was written since, and nobody has the database open."""
    made = open_database(source.database)
    await made.write(lambda conn: DeploymentCheck(DEPLOYMENT, NEARBY, HERE)(conn, START))
    await put(made, "colour", "green")
    write_backup(source, tmp_path / "backup.zip", START)
    await put(made, "shape", "round")
    await made.close()
    return tmp_path / "backup.zip"


def read(path: Path | str, key: str) -> str | None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return row[0] if row else None


def rewritten(archive: Path, **manifest: object) -> Path:
    """The same backup with another manifest."""
    changed = archive.with_name("changed.zip")
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(changed, "w") as new:
        new.writestr(MANIFEST, json.dumps({**json.loads(old.read(MANIFEST)), **manifest}))
        new.writestr("crucible.db", old.read("crucible.db"))
    return changed


async def test_the_backup_comes_back_and_what_was_there_is_kept(source: BackupSource, archive: Path) -> None:
    done = restore(source, archive, LATER)
    assert (read(source.database, "colour"), read(source.database, "shape")) == ("green", None)
    assert read(source.database, restore_hold.RESTORED_AT) == repr(LATER)
    assert done.kept is not None
    assert "before-restore-" in done.kept
    assert read(done.kept, "shape") == "round"
    assert Path(source.database).stat().st_mode & 0o777 == 0o600
    left = {path.name for path in Path(source.database).parent.iterdir()}
    assert left == {"crucible.db", Path(done.kept).name}, "no log of the old file is left for the new one"


async def test_a_restored_database_opens_is_held_and_can_be_confirmed(source: BackupSource, archive: Path) -> None:
    restore(source, archive, LATER)
    opened = open_database(source.database)
    assert await opened.read(restore_hold.is_held)
    await opened.close()
    assert confirm_offline(source, LATER + 5).restored_at == LATER
    opened = open_database(source.database)
    assert not await opened.read(restore_hold.is_held)
    await opened.close()


async def test_restoring_twice_keeps_both(source: BackupSource, archive: Path) -> None:
    first, second = restore(source, archive, LATER), restore(source, archive, LATER)
    assert first.kept != second.kept
    assert read(str(first.kept), "shape") == "round"


async def test_a_lost_database_is_restored_too(source: BackupSource, archive: Path) -> None:
    Path(source.database).unlink()
    assert restore(source, archive, LATER).kept is None
    assert read(source.database, "colour") == "green"


async def test_a_damaged_database_is_kept_and_replaced(source: BackupSource, archive: Path) -> None:
    database = Path(source.database)
    database.write_bytes(b"not a database at all")
    database.with_name("crucible.db-wal").write_bytes(b"its log")
    done = restore(source, archive, LATER)
    assert Path(str(done.kept)).read_bytes() == b"not a database at all"
    assert Path(f"{done.kept}-wal").read_bytes() == b"its log"
    assert read(database, "colour") == "green"


async def test_another_deployments_backup_needs_force_and_then_is_ours(source: BackupSource, archive: Path) -> None:
    other = replace(source, deployment="dep-2")
    with pytest.raises(ForeignBackup) as refused:
        restore(other, archive, LATER)
    assert "--force" in refused.value.fix
    assert read(source.database, "shape") == "round", "nothing changed"
    restore(other, archive, LATER, force=True)
    opened = open_database(source.database)
    await opened.write(lambda conn: DeploymentCheck("dep-2", NEARBY, THERE)(conn, LATER))
    await opened.close()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"schema": "9999"}, NewerDatabase),
        ({"schema": "0010"}, OlderDatabase),
        ({"format": 99}, BadBackup),
        ({"sha256": "0" * 64}, BadBackup),
        ({"size": 1}, BadBackup),
        ({"member": "crucible.pgdump"}, BadBackup),
        ({"deployment": None}, BadBackup),
    ],
)
async def test_what_is_not_sound_changes_nothing(
    source: BackupSource, archive: Path, change: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        restore(source, rewritten(archive, **change), LATER, force=True)
    assert read(source.database, "shape") == "round"
    assert read(source.database, restore_hold.RESTORED_AT) is None
    assert {path.name for path in Path(source.database).parent.iterdir()} == {"crucible.db"}


async def test_a_file_that_is_no_backup_is_refused(source: BackupSource, archive: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    torn = tmp_path / "torn.zip"
    torn.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    for name, error in (("text", BadBackup), ("torn.zip", BadBackup), ("missing", BadInput)):
        with pytest.raises(error):
            restore(source, tmp_path / name, LATER)
    assert read(source.database, "shape") == "round"


async def test_a_backup_that_unpacks_to_more_than_it_says_does_not_fill_the_disk(
    source: BackupSource, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    unpacked = restore_module._copy

    def copy(inner: IO[bytes], outer: IO[bytes], size: int) -> None:
        unpacked(inner, outer, size)
        written.append(outer.tell())

    monkeypatch.setattr(restore_module, "_copy", copy)
    with pytest.raises(BadBackup):
        restore(source, rewritten(archive, size=100), LATER)
    assert written == [101]


@pytest.mark.parametrize("seed", range(20))
async def test_a_backup_with_a_flipped_byte_never_becomes_the_database(
    source: BackupSource, archive: Path, seed: int
) -> None:
    data = bytearray(archive.read_bytes())
    data[(seed * 7919) % len(data)] ^= 0x41
    archive.write_bytes(data)
    try:
        restore(source, archive, LATER, force=True)
    except (BadInput, NewerDatabase):
        assert read(source.database, "shape") == "round"
    else:  # the byte was one that means nothing, such as a date in the archive
        assert read(source.database, "colour") == "green"


async def test_the_writer_of_a_live_database_is_not_needed_for_its_backup(
    db: Db, source: BackupSource, tmp_path: Path
) -> None:
    row = insert(t.meta).values(key="k", value="v")
    await db.write(lambda conn: conn.execute(row).rowcount)
    assert write_backup(source, tmp_path / "b.zip", START).bytes > 0
