"""What only the runner with threads does: reading beside a write, waiting for room, draining at the end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Connection, text

from crucible.control.db import DatabaseClosed, DatabaseError, SqliteDb

if TYPE_CHECKING:
    from tests.control.db.conftest import Gate, Notes


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("pragma", "value"), [("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1), ("temp_store", 2)]
)
async def test_the_writer_is_durable(sqlite_db: SqliteDb, pragma: str, value: object) -> None:
    assert await sqlite_db.write(lambda c: c.execute(text(f"PRAGMA {pragma}")).scalar()) == value


async def test_reads_go_on_during_a_long_write(sqlite_db: SqliteDb, gate: Gate, table: Notes) -> None:
    await sqlite_db.write(table.add(1))

    def long(connection: Connection) -> int:
        table.add(2)(connection)
        gate.hold()
        return 2

    writing = asyncio.create_task(sqlite_db.write(long))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    assert await asyncio.gather(*(sqlite_db.read(table.ids) for _ in range(20))) == [[1]] * 20
    gate.opened.set()
    assert await writing == 2
    assert await sqlite_db.read(table.ids) == [1, 2]


async def test_a_read_sees_one_snapshot_from_its_first_statement(sqlite_db: SqliteDb, gate: Gate, table: Notes) -> None:
    await sqlite_db.write(table.add(1))

    def twice(connection: Connection) -> tuple[list[int], list[int]]:
        before = table.ids(connection)
        gate.hold()
        return before, table.ids(connection)

    reading = asyncio.create_task(sqlite_db.read(twice))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    await sqlite_db.write(table.add(2))
    gate.opened.set()
    assert await reading == ([1], [1])


async def test_writes_beyond_the_bound_wait_and_do_not_fail(tmp_path: Path, gate: Gate, table: Notes) -> None:
    db = SqliteDb(tmp_path / "small.db", max_waiting=2)
    await db.write(table.create)
    busy = asyncio.create_task(db.write(lambda connection: gate.hold()))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    writes = [asyncio.create_task(db.write(table.add(n))) for n in range(10)]
    await turns()
    gate.opened.set()
    await busy
    assert await asyncio.gather(*writes) == list(range(10))
    await db.close()


async def test_close_finishes_what_it_took_and_folds_the_wal(tmp_path: Path, gate: Gate, table: Notes) -> None:
    db = SqliteDb(tmp_path / "closing.db")
    await db.write(table.create)
    busy = asyncio.create_task(db.write(lambda connection: gate.hold()))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    waiting = [asyncio.create_task(db.write(table.add(n))) for n in range(3)]
    await turns()
    closing = asyncio.create_task(db.close())
    await turns()
    with pytest.raises(DatabaseClosed):
        await db.write(table.add(4))
    gate.opened.set()
    await asyncio.gather(busy, closing)
    assert await asyncio.gather(*waiting) == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["closing.db"]
    reopened = SqliteDb(tmp_path / "closing.db")
    assert await reopened.read(table.ids) == [0, 1, 2]
    await reopened.close()


async def test_a_file_that_cannot_be_opened_is_told_with_its_fix(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError) as failure:
        SqliteDb(tmp_path / "no such folder" / "x.db")
    assert "CRUCIBLE_HOME" in failure.value.fix
