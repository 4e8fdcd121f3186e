"""A database whose files are removed or replaced while it is open: nothing is acknowledged any more."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crucible.control.db import DatabaseLost, SqliteDb

if TYPE_CHECKING:
    from tests.control.db.conftest import Notes


@pytest.fixture
async def reopened(tmp_path: Path, table: Notes) -> AsyncIterator[SqliteDb]:
    """A database that is opened like a server's, after its schema was made."""
    path = tmp_path / "state" / "notes.db"
    path.parent.mkdir()
    made = SqliteDb(path)
    await made.write(table.create)
    await made.close()
    db = SqliteDb(path)
    await db.write(table.add(1))
    yield db
    await db.close()


@pytest.mark.parametrize("name", ["notes.db", "notes.db-wal"])
async def test_a_removed_file_refuses_writes(reopened: SqliteDb, tmp_path: Path, table: Notes, name: str) -> None:
    (tmp_path / "state" / name).unlink()
    with pytest.raises(DatabaseLost) as lost:
        await reopened.write(table.add(2))
    assert name in lost.value.what
    assert lost.value.http_status == 503


async def test_a_removed_folder_refuses_writes(reopened: SqliteDb, tmp_path: Path, table: Notes) -> None:
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(DatabaseLost):
        await reopened.write(table.add(2))
    assert not (tmp_path / "state").exists()


async def test_a_replaced_file_refuses_writes(reopened: SqliteDb, tmp_path: Path, table: Notes) -> None:
    path = tmp_path / "state" / "notes.db"
    shutil.copy(path, tmp_path / "copy.db")
    (tmp_path / "copy.db").replace(path)
    with pytest.raises(DatabaseLost):
        await reopened.write(table.add(2))


async def test_a_functions_own_error_stays_its_own(reopened: SqliteDb, tmp_path: Path) -> None:
    def fails(connection: object) -> None:
        raise LookupError

    (tmp_path / "state" / "notes.db").unlink()
    with pytest.raises(LookupError):
        await reopened.write(fails)


async def test_a_folder_that_is_moved_and_back_is_the_same(reopened: SqliteDb, tmp_path: Path, table: Notes) -> None:
    (tmp_path / "state").rename(tmp_path / "elsewhere")
    with pytest.raises(DatabaseLost):
        await reopened.write(table.add(2))
    (tmp_path / "elsewhere").rename(tmp_path / "state")
    assert await reopened.write(table.add(3)) == 3
