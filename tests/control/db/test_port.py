"""What every runner of the port promises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError, InternalError, InvalidRequestError, OperationalError

from crucible.control.db import DatabaseClosed, Db, DiskFull, InlineDb, SqliteDb
from crucible.control.db.postgres.database import PostgresDb

if TYPE_CHECKING:
    from tests.control.db.conftest import Notes


EMBEDDED = ["sqlite", "inline", "inline on a file"]


def make_db(runner: str, request: pytest.FixtureRequest, path: Path) -> Db:
    if runner == "postgres":
        return PostgresDb(request.getfixturevalue("postgres_url"))
    if runner == "sqlite":
        return SqliteDb(path)
    return InlineDb(path) if runner == "inline on a file" else InlineDb()


@asynccontextmanager
async def opened(db: Db, table: Notes) -> AsyncIterator[Db]:
    await db.write(table.create)
    yield db
    await db.close()


@pytest.fixture(params=[*EMBEDDED, "postgres"])
async def db(request: pytest.FixtureRequest, tmp_path: Path, table: Notes) -> AsyncIterator[Db]:
    async with opened(make_db(request.param, request, tmp_path / "port.db"), table) as db:
        yield db


@pytest.fixture(params=EMBEDDED)
async def embedded(request: pytest.FixtureRequest, tmp_path: Path, table: Notes) -> AsyncIterator[Db]:
    """Those on SQLite, whose settings a test can look at and change."""
    async with opened(make_db(request.param, request, tmp_path / "port.db"), table) as db:
        yield db


async def test_a_write_returns_its_value_and_is_read_at_once(db: Db, table: Notes) -> None:
    assert await db.write(table.add(1)) == 1
    assert await db.read(table.ids) == [1]


async def test_none_is_a_value(db: Db) -> None:
    def nothing(connection: Connection) -> int | None:
        return None

    assert await db.write(nothing) is None
    assert await db.read(nothing) is None


async def test_what_a_failing_write_did_is_undone(db: Db, table: Notes) -> None:
    def fails(connection: Connection) -> None:
        table.add(1)(connection)
        raise LookupError("changed my mind")

    with pytest.raises(LookupError, match="changed my mind"):
        await db.write(fails)
    await db.write(table.add(2))
    assert await db.read(table.ids) == [2]


async def test_a_broken_constraint_comes_as_integrity_error(db: Db, table: Notes) -> None:
    await db.write(table.add(1))
    with pytest.raises(IntegrityError):
        await db.write(table.add(1))
    assert await db.read(table.ids) == [1]


async def test_a_constraint_checked_at_commit_comes_as_integrity_error_too(db: Db, table: Notes) -> None:
    with pytest.raises(IntegrityError):
        await db.write(table.reply(1, note=404))
    assert await db.write(table.add(404)) == 404


@pytest.mark.parametrize("error", [StopIteration(), KeyError("x"), asyncio.CancelledError()])
async def test_awkward_exceptions_reach_the_caller_and_hang_nobody(db: Db, error: BaseException) -> None:
    def fails(connection: Connection) -> None:
        raise error

    for run in (db.write, db.read):
        # A coroutine cannot let StopIteration out: Python makes it a RuntimeError.
        with pytest.raises((type(error), RuntimeError)):
            await asyncio.wait_for(run(fails), 10)


@pytest.mark.parametrize("end", [Connection.commit, Connection.rollback])
async def test_a_function_that_ends_the_transaction_is_refused_and_undone(
    db: Db, table: Notes, end: Callable[[Connection], None]
) -> None:
    def ends(connection: Connection) -> None:
        table.add(1)(connection)
        end(connection)

    for run in (db.write, db.read):
        with pytest.raises((InvalidRequestError, OperationalError, InternalError)):
            await run(ends)
    await db.write(table.add(2))
    assert await db.read(table.ids) == [2]


async def test_a_function_that_begins_a_transaction_of_its_own_is_refused_and_undone(db: Db, table: Notes) -> None:
    def begins(connection: Connection) -> None:
        with connection.begin():
            table.add(1)(connection)

    with pytest.raises(InvalidRequestError):
        await db.write(begins)
    await db.write(table.add(2))
    assert await db.read(table.ids) == [2]


async def test_a_function_may_use_savepoints_of_its_own(db: Db, table: Notes) -> None:
    def tries(connection: Connection) -> str:
        table.add(1)(connection)
        try:
            with connection.begin_nested():
                table.add(2)(connection)
                table.add(1)(connection)
        except IntegrityError:
            return "kept the first"
        return "no conflict"

    assert await db.write(tries) == "kept the first"
    assert await db.read(table.ids) == [1]


async def test_a_read_cannot_write(db: Db, table: Notes) -> None:
    with pytest.raises((OperationalError, InternalError), match=r"read-?only"):
        await db.read(table.add(1))
    assert await db.write(table.add(2)) == 2
    assert await db.read(table.ids) == [2]


async def test_foreign_keys_hold(embedded: Db) -> None:
    assert await embedded.read(lambda c: c.execute(text("PRAGMA foreign_keys")).scalar()) == 1
    assert await embedded.write(lambda c: c.execute(text("PRAGMA foreign_keys")).scalar()) == 1


async def test_a_full_disk_is_told_as_such_and_the_database_goes_on(embedded: Db, table: Notes) -> None:
    db = embedded
    await db.write(table.add(1))
    pages = await db.write(lambda c: c.execute(text("PRAGMA page_count")).scalar_one())
    await db.write(lambda c: c.execute(text(f"PRAGMA max_page_count={pages + 2}")).scalar())
    with pytest.raises(DiskFull, match="full"):
        await db.write(table.add(2, "x" * 1_000_000))
    assert await db.read(table.ids) == [1]
    await db.write(table.add(3))
    await db.write(lambda c: c.execute(text("PRAGMA max_page_count=1000000")).scalar())
    await db.write(table.add(4, "x" * 1_000_000))
    assert await db.read(table.ids) == [1, 3, 4]


async def test_a_closed_database_says_so(db: Db, table: Notes) -> None:
    await db.close()
    await db.close()
    with pytest.raises(DatabaseClosed):
        await db.write(table.add(1))
    with pytest.raises(DatabaseClosed):
        await db.read(table.ids)
