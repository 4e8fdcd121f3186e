"""What only the runner on a server does: many writers at once, and what can be wrong with a server."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import Column, Connection, Integer, MetaData, Table, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError
from tests.control.fakes import FakeClock

from crucible.control.db import DamagedDatabase, DatabaseBusy, DatabaseClosed, DatabaseError, DiskFull, InlineDb
from crucible.control.db import schema as t
from crucible.control.db.clock import database_now
from crucible.control.db.postgres.database import PostgresDb
from crucible.control.db.postgres.failures import DatabaseRefused, DatabaseUnreachable, ReadOnlyDatabase
from crucible.control.reconcile.duties import HOLD_SECONDS, Duties, Duty

if TYPE_CHECKING:
    from tests.control.db.conftest import Gate, Notes
    from tests.postgres import Server

tallies_metadata = MetaData()
tallies = Table(
    "tallies",
    tallies_metadata,
    Column("id", Integer, primary_key=True),
    Column("version", Integer),
    Column("value", Integer),
)


@pytest.fixture
async def db(postgres_url: str, table: Notes) -> AsyncIterator[PostgresDb]:
    db = PostgresDb(postgres_url, pool=16)
    await db.write(table.create)
    await db.write(tallies_metadata.create_all)
    await db.write(lambda c: c.execute(insert(tallies), [{"id": n, "version": 0, "value": 0} for n in (1, 2)]).rowcount)
    yield db
    await db.close()


@pytest.fixture
async def other(postgres_url: str, db: PostgresDb) -> AsyncIterator[PostgresDb]:
    """Another process on the same database."""
    other = PostgresDb(postgres_url, pool=16)
    yield other
    await other.close()


def tally(number: int = 1) -> Callable[[Connection], tuple[int, int]]:
    query = select(tallies.c.version, tallies.c.value).where(tallies.c.id == number)

    def fn(connection: Connection) -> tuple[int, int]:
        version, value = connection.execute(query).one()
        return version, value

    return fn


def count_one(connection: Connection) -> None:
    """Read, decide, write on the condition that the version is the one read."""
    version, value = tally()(connection)
    done = connection.execute(
        update(tallies)
        .where(tallies.c.id == 1, tallies.c.version == version)
        .values(version=version + 1, value=value + 1)
    )
    assert done.rowcount == 1, "a serializable transaction is never overtaken silently"


class Rendezvous:
    """Holds the first run of each of `parties` functions until all have come this far."""

    def __init__(self, parties: int) -> None:
        self._barrier = threading.Barrier(parties)
        self._came: set[int] = set()
        self.runs = 0

    def meet(self, who: int) -> None:
        self.runs += 1
        if who not in self._came:
            self._came.add(who)
            self._barrier.wait(30)


async def test_sixteen_writers_with_version_checks_lose_no_update(db: PostgresDb, other: PostgresDb) -> None:
    async def writer(number: int) -> None:
        for _ in range(15):
            await (db if number % 2 else other).write(count_one)

    await asyncio.gather(*(writer(number) for number in range(16)))
    assert await db.read(tally()) == (240, 240)


async def test_two_that_each_read_what_the_other_writes_do_not_both_win(db: PostgresDb, other: PostgresDb) -> None:
    """At most one of two may have it: each looks at both rows and takes its own."""
    together = Rendezvous(2)

    def take(mine: int) -> Callable[[Connection], bool]:
        def fn(connection: Connection) -> bool:
            taken = connection.execute(select(func.sum(tallies.c.value))).scalar_one()
            together.meet(mine)
            if taken:
                return False
            connection.execute(update(tallies).where(tallies.c.id == mine).values(value=1))
            return True

        return fn

    won = await asyncio.gather(db.write(take(1)), other.write(take(2)))
    assert sorted(won) == [False, True]
    assert together.runs > 2


async def test_of_two_that_add_the_same_row_the_second_finds_it(
    db: PostgresDb, other: PostgresDb, table: Notes
) -> None:
    together = Rendezvous(2)

    def once(who: int) -> Callable[[Connection], str]:
        def fn(connection: Connection) -> str:
            known = 7 in table.ids(connection)
            together.meet(who)
            if known:
                return "known"
            table.add(7)(connection)
            return "added"

        return fn

    assert sorted(await asyncio.gather(db.write(once(1)), other.write(once(2)))) == ["added", "known"]


async def test_two_that_lock_each_other_both_succeed(db: PostgresDb, other: PostgresDb) -> None:
    together = Rendezvous(2)

    def both(first: int, second: int) -> Callable[[Connection], int]:
        def fn(connection: Connection) -> int:
            raised = update(tallies).values(value=tallies.c.value + 1)
            connection.execute(raised.where(tallies.c.id == first))
            together.meet(first)
            return connection.execute(raised.where(tallies.c.id == second)).rowcount

        return fn

    await asyncio.gather(db.write(both(1, 2)), other.write(both(2, 1)))
    assert [(await db.read(tally(n)))[1] for n in (1, 2)] == [2, 2]


async def test_a_holder_of_a_role_that_was_paused_writes_nothing_after_a_takeover(
    db: PostgresDb, other: PostgresDb, gate: Gate, table: Notes
) -> None:
    """It looked at its epoch, then stopped; meanwhile another took the duty and acted."""
    await db.write(t.roles.create)
    old, new = Duties("old"), Duties("new")
    await old.renew(db, FakeClock())

    def act(duties: Duties, note: int, pause: Callable[[], None]) -> Callable[[Connection], bool]:
        def fn(connection: Connection) -> bool:
            if not duties.holds(connection, Duty.SCHEDULER) or table.ids(connection):
                return False
            pause()
            table.add(note)(connection)
            return True

        return fn

    paused = asyncio.create_task(db.write(act(old, 1, gate.hold)))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    await other.write(lambda c: c.execute(update(t.roles).values(until=0.0)).rowcount)
    await new.renew(other, FakeClock())
    assert await other.write(act(new, 2, lambda: None))
    gate.opened.set()
    assert not await paused
    assert await db.read(table.ids) == [2]


async def test_processes_whose_clocks_disagree_agree_on_who_holds_a_role(db: PostgresDb, other: PostgresDb) -> None:
    await db.write(t.roles.create)
    behind, ahead = Duties("behind"), Duties("ahead")
    early, late = FakeClock(), FakeClock()
    late.move(3600.0)
    await behind.renew(db, early)
    assert 0 < await ahead.renew(other, late) <= HOLD_SECONDS
    assert (behind.has(Duty.SCHEDULER), ahead.has(Duty.SCHEDULER)) == (True, False)
    assert abs(db.clock.now() - other.clock.now()) < 5, "between transactions, too"


async def test_reads_go_on_during_long_writes_on_one_snapshot(db: PostgresDb, gate: Gate, table: Notes) -> None:
    await db.write(table.add(1))

    def twice(connection: Connection) -> tuple[list[int], list[int]]:
        before = table.ids(connection)
        gate.hold()
        return before, table.ids(connection)

    reading = asyncio.create_task(db.read(twice))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    await db.write(table.add(2))
    assert await db.read(table.ids) == [1, 2]
    gate.opened.set()
    assert await reading == ([1], [1])


async def test_more_calls_than_connections_wait_their_turn(postgres_url: str, table: Notes) -> None:
    db = PostgresDb(postgres_url, pool=2)
    await db.write(table.create)
    await asyncio.gather(*(db.write(table.add(n)) for n in range(50)), *(db.read(table.ids) for _ in range(50)))
    assert await db.read(table.ids) == list(range(50))
    open_now = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
    count = await db.read(lambda c: c.execute(open_now).scalar_one())
    assert count <= 2 + 2
    await db.close()


async def test_a_write_cancelled_while_it_waits_is_not_run(postgres_url: str, gate: Gate, table: Notes) -> None:
    db = PostgresDb(postgres_url, pool=1)
    await db.write(table.create)
    busy = asyncio.create_task(db.write(lambda connection: gate.hold()))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    cancelled, kept = (asyncio.create_task(db.write(table.add(n))) for n in (1, 2))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.sleep(0)
    gate.opened.set()
    await asyncio.gather(busy, kept)
    assert await db.read(table.ids) == [2]
    await db.close()


async def test_close_finishes_what_it_took(postgres_url: str, db: PostgresDb, gate: Gate, table: Notes) -> None:
    closing = PostgresDb(postgres_url, pool=1)
    busy = asyncio.create_task(closing.write(lambda connection: gate.hold()))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    waiting = [asyncio.create_task(closing.write(table.add(n))) for n in range(3)]
    await asyncio.sleep(0)
    closed = asyncio.create_task(closing.close())
    await asyncio.sleep(0)
    with pytest.raises(DatabaseClosed):
        await closing.write(table.add(9))
    gate.opened.set()
    await asyncio.gather(busy, closed, *waiting)
    assert await db.read(table.ids) == [0, 1, 2]


async def test_a_function_that_goes_on_after_a_failed_statement_is_told_and_undone(
    db: PostgresDb, table: Notes
) -> None:
    def goes_on(connection: Connection) -> None:
        table.add(1)(connection)
        with pytest.raises(IntegrityError):
            table.add(1)(connection)

    with pytest.raises(DatabaseError, match="begin_nested"):
        await db.write(goes_on)
    assert await db.read(table.ids) == []


async def test_a_row_that_is_really_there_twice_is_told_after_one_more_look(db: PostgresDb, table: Notes) -> None:
    runs = []

    def again(connection: Connection) -> None:
        runs.append(1)
        table.add(1)(connection)

    await db.write(table.add(1))
    with pytest.raises(IntegrityError):
        await db.write(again)
    assert len(runs) == 2


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("53100", DiskFull),
        ("53300", DatabaseBusy),
        ("55P03", DatabaseBusy),
        ("57014", DatabaseBusy),
        ("57P03", DatabaseUnreachable),
        ("25006", ReadOnlyDatabase),
        ("42501", DatabaseRefused),
        ("XX001", DamagedDatabase),
    ],
)
async def test_the_server_s_troubles_are_told_in_our_words(db: PostgresDb, state: str, error: type[Exception]) -> None:
    raised = text(f"DO $$ BEGIN RAISE EXCEPTION 'as it says' USING ERRCODE = '{state}'; END $$")
    with pytest.raises(error) as told:
        await db.write(lambda c: c.execute(raised).rowcount)
    assert "as it says" in told.value.why
    assert told.value.fix
    assert await db.read(tally()) == (0, 0)


@pytest.mark.parametrize("state", ["40001", "40P01"])
async def test_who_collides_every_time_is_told_in_the_end(postgres_url: str, state: str) -> None:
    raised = text(f"DO $$ BEGIN RAISE EXCEPTION 'once more' USING ERRCODE = '{state}'; END $$")
    db, runs = PostgresDb(postgres_url, seconds=1.0), []

    def collide(connection: Connection) -> None:
        runs.append(1)
        connection.execute(raised)

    with pytest.raises(DatabaseBusy, match="too busy"):
        await db.write(collide)
    assert len(runs) > 2
    await db.close()


async def test_a_lock_that_stays_held_ends_the_wait(db: PostgresDb, postgres_url: str) -> None:
    def hurry(connection: Connection) -> None:
        connection.execute(text("SET LOCAL lock_timeout = '50ms'"))
        count_one(connection)

    with psycopg.connect(postgres_url) as holder:
        holder.execute("SELECT * FROM tallies FOR UPDATE")
        with pytest.raises(DatabaseBusy):
            await db.write(hurry)
    await db.write(count_one)


async def timed(call: Any) -> tuple[BaseException, float]:
    started = time.monotonic()
    (error,) = await asyncio.gather(call, return_exceptions=True)
    return error, time.monotonic() - started


async def test_a_server_that_is_not_there_is_told_within_the_deadline() -> None:
    db = PostgresDb("postgresql://crucible:s3cret@127.0.0.1:1/crucible", seconds=0.4)
    for call in (db.write(tally()), db.read(tally())):
        error, seconds = await timed(call)
        assert isinstance(error, DatabaseUnreachable)
        assert "database" in error.fix
        assert "s3cret" not in str(error)
        assert seconds < 5
    await db.close()


@pytest.mark.parametrize("wrong", ["postgres@{}/nowhere", "nobody:s3cret@{}/postgres"])
async def test_who_is_not_let_in_is_told_at_once_with_the_fix(postgres_server: Server, wrong: str) -> None:
    db = PostgresDb("postgresql://" + wrong.format(f"127.0.0.1:{postgres_server.port}"), seconds=60)
    error, seconds = await timed(db.write(tally()))
    assert isinstance(error, DatabaseRefused)
    assert "password" in error.fix
    assert "s3cret" not in str(error)
    assert seconds < 10
    await db.close()


async def test_a_server_that_takes_no_writes_is_told_as_such(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {admin.info.dbname} SET default_transaction_read_only = on")
    db = PostgresDb(postgres_url, seconds=0.3)
    error, _ = await timed(db.write(tally()))
    assert isinstance(error, ReadOnlyDatabase)
    assert "primary" in error.fix
    await db.close()


async def test_a_call_whose_time_is_up_before_its_turn_is_told(postgres_url: str) -> None:
    db = PostgresDb(postgres_url, seconds=0)
    error, _ = await timed(db.write(tally()))
    assert isinstance(error, DatabaseBusy)
    await db.close()


async def test_acknowledged_is_durable_whatever_the_server_s_default(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {admin.info.dbname} SET synchronous_commit = off")
    db = PostgresDb(postgres_url)
    assert await db.write(lambda c: c.execute(text("SHOW synchronous_commit")).scalar()) == "on"
    await db.close()


async def test_the_clock_is_the_server_s(db: PostgresDb) -> None:
    def clocks(connection: Connection) -> tuple[float, float]:
        asked = connection.execute(text("SELECT extract(epoch FROM clock_timestamp())::float8")).scalar_one()
        return database_now(connection, lambda: 0.0), asked

    for run in (db.write, db.read):
        ours, theirs = await run(clocks)
        assert abs(ours - theirs) < 5


async def test_the_clock_is_the_caller_s_where_it_is_not_to_be_the_server_s(postgres_url: str) -> None:
    db = PostgresDb(postgres_url, server_clock=False)
    assert await db.write(lambda c: database_now(c, lambda: 7.0)) == 7.0
    await db.close()


async def test_on_sqlite_the_clock_is_the_caller_s() -> None:
    db = InlineDb()
    assert await db.write(lambda c: database_now(c, lambda: 7.0)) == 7.0
    await db.close()


def test_a_full_house_at_the_door_is_told_with_its_fix() -> None:
    from crucible.control.db.postgres.failures import cannot_connect

    said = psycopg.OperationalError("FATAL:  sorry, too many clients already")
    assert isinstance(cannot_connect(said), DatabaseBusy)
    assert "max_connections" in cannot_connect(said).fix
