"""Group commit: what shares a transaction, what does not, and when answers leave."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from crucible.control.db import DatabaseBusy, DatabaseError, DiskFull, SqliteDb

if TYPE_CHECKING:
    from tests.control.db.conftest import Gate, Notes, Trace

Fn = Callable[[Connection], Any]


async def until(reached: Any) -> None:
    assert await asyncio.to_thread(reached.wait, 30)


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def as_one_group(db: SqliteDb, gate: Gate, fns: list[Fn]) -> list[Any]:
    """Keep the writer busy until all of `fns` wait behind it (they may join its group)."""
    busy = asyncio.create_task(db.write(lambda connection: gate.hold()))
    await until(gate.reached)
    tasks = [asyncio.create_task(db.write(fn)) for fn in fns]
    await turns()
    gate.opened.set()
    await asyncio.wait([busy])
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_many_writes_at_once_need_few_commits(sqlite_db: SqliteDb, trace: Trace, table: Notes) -> None:
    before = trace.count("COMMIT")
    assert await asyncio.gather(*(sqlite_db.write(table.add(n)) for n in range(500))) == list(range(500))
    assert await sqlite_db.read(table.ids) == list(range(500))
    assert trace.count("COMMIT") - before < 100


async def test_waiting_writes_share_one_commit(sqlite_db: SqliteDb, trace: Trace, gate: Gate, table: Notes) -> None:
    before = trace.count("COMMIT")
    assert await as_one_group(sqlite_db, gate, [table.add(n) for n in range(5)]) == [0, 1, 2, 3, 4]
    assert trace.count("COMMIT") - before <= 2  # the busy one, and the group


async def test_one_that_fails_in_a_group_is_undone_alone(sqlite_db: SqliteDb, gate: Gate, table: Notes) -> None:
    def fails(connection: Connection) -> None:
        table.add(99)(connection)
        raise LookupError

    fns = [table.add(1), fails, table.add(1), table.add(2)]
    first, failed, twice, second = await as_one_group(sqlite_db, gate, fns)
    assert (first, second) == (1, 2)
    assert isinstance(failed, LookupError)
    assert isinstance(twice, IntegrityError)
    assert await sqlite_db.read(table.ids) == [1, 2]


async def test_later_functions_of_a_group_see_what_earlier_ones_did(
    sqlite_db: SqliteDb, gate: Gate, table: Notes
) -> None:
    assert await as_one_group(sqlite_db, gate, [table.add(1), table.ids]) == [1, [1]]


async def test_no_answer_leaves_before_the_commit(sqlite_db: SqliteDb, trace: Trace, gate: Gate, table: Notes) -> None:
    trace.before = lambda statement: gate.hold() if statement == "COMMIT" else None
    writes = [asyncio.create_task(sqlite_db.write(table.add(n))) for n in range(3)]
    await until(gate.reached)
    await turns()
    assert trace.statements[-2:] == ["RELEASE fn", "COMMIT"]
    assert not any(write.done() for write in writes)
    assert await sqlite_db.read(table.ids) == []
    gate.opened.set()
    assert await asyncio.gather(*writes) == [0, 1, 2]


async def test_a_commit_that_fails_fails_the_whole_group_and_the_next_goes_on(
    sqlite_db: SqliteDb, tmp_path: Path, gate: Gate, table: Notes
) -> None:
    """The limit on the size of a file makes the WAL refuse to grow, which COMMIT is the first to notice."""
    await sqlite_db.write(table.add(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = (tmp_path / "notes.db-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        outcomes = await as_one_group(sqlite_db, gate, [table.add(2), table.add(3)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [type(outcome) for outcome in outcomes] == [DatabaseError, DatabaseError], outcomes
    assert await sqlite_db.read(table.ids) == [1]
    assert await sqlite_db.write(table.add(4)) == 4
    assert await sqlite_db.read(table.ids) == [1, 4]


async def test_a_group_torn_by_a_full_disk_is_run_again_one_by_one(
    sqlite_db: SqliteDb, gate: Gate, table: Notes
) -> None:
    runs: list[int] = []

    def counted(note: int, size: int) -> Fn:
        def fn(connection: Connection) -> int:
            runs.append(note)
            return table.add(note, "x" * size)(connection)

        return fn

    pages = await sqlite_db.write(lambda c: c.execute(text("PRAGMA page_count")).scalar_one())
    await sqlite_db.write(lambda c: c.execute(text(f"PRAGMA max_page_count={pages + 4}")).scalar())
    fns = [counted(1, 10), counted(2, 1_000_000), counted(3, 10)]
    first, full, third = await as_one_group(sqlite_db, gate, fns)
    assert (first, third) == (1, 3)
    assert isinstance(full, DiskFull)
    assert runs.count(1) == 2
    assert await sqlite_db.read(table.ids) == [1, 3]


async def test_a_constraint_found_at_commit_fails_only_its_own_write(
    sqlite_db: SqliteDb, gate: Gate, table: Notes
) -> None:
    first, orphan, third = await as_one_group(sqlite_db, gate, [table.add(1), table.reply(1, note=404), table.add(3)])
    assert (first, third) == (1, 3)
    assert isinstance(orphan, IntegrityError)
    assert await sqlite_db.read(table.ids) == [1, 3]


async def test_a_lock_held_elsewhere_fails_all_that_wait_with_one_wait(
    sqlite_db: SqliteDb, tmp_path: Path, table: Notes
) -> None:
    await sqlite_db.write(lambda c: c.execute(text("PRAGMA busy_timeout=1")).scalar())
    other = sqlite3.connect(tmp_path / "notes.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    outcomes = await asyncio.gather(*(sqlite_db.write(table.add(n)) for n in range(3)), return_exceptions=True)
    assert all(isinstance(outcome, DatabaseBusy) for outcome in outcomes)
    other.execute("ROLLBACK")
    other.close()
    assert await sqlite_db.write(table.add(9)) == 9


async def test_a_write_cancelled_while_it_waits_is_not_run(sqlite_db: SqliteDb, gate: Gate, table: Notes) -> None:
    busy = asyncio.create_task(sqlite_db.write(lambda connection: gate.hold()))
    await until(gate.reached)
    cancelled, kept = (asyncio.create_task(sqlite_db.write(table.add(n))) for n in (1, 2))
    await turns()
    cancelled.cancel()
    await turns()
    gate.opened.set()
    await asyncio.gather(busy, kept)
    assert await sqlite_db.read(table.ids) == [2]
