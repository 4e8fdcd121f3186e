"""Connections that break and servers that restart: nothing acknowledged is lost, nothing is done twice."""

from __future__ import annotations

import asyncio
import itertools
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import Connection, Integer, String, sql, text
from sqlalchemy.exc import IntegrityError, OperationalError
from tests.control.db.postgres_line import ENDS, Proxy
from tests.postgres import Server, server

from crucible.control.db import DatabaseError, open_database
from crucible.control.db.postgres.database import PostgresDb
from crucible.control.db.postgres.failures import CommitUnknown, breaks_connection, is_rejection
from crucible.control.db.statement import Statement

if TYPE_CHECKING:
    from tests.control.db.conftest import Gate, Notes

pytestmark = pytest.mark.enable_socket

NOTES = sql.table("notes", sql.column("id", Integer), sql.column("text", String))
ADD = Statement(sql.insert(NOTES).values(id=sql.bindparam("id"), text=sql.bindparam("text")))
IDS = Statement(sql.select(NOTES.c.id).order_by(NOTES.c.id))


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """One that these tests may restart and crash."""
    with server() as made:
        yield made


@pytest.fixture
def url(own_server: Server) -> Iterator[str]:
    with own_server.database() as url:
        yield url


@pytest.fixture
async def db(url: str, table: Notes) -> AsyncIterator[PostgresDb]:
    db = open_database(url)
    assert isinstance(db, PostgresDb)
    await db.write(table.create)
    yield db
    await db.close()


@pytest.fixture
def proxy(own_server: Server) -> Iterator[Proxy]:
    proxy = Proxy(own_server.port)
    yield proxy
    proxy.close()


@pytest.fixture
async def proxied(proxy: Proxy, own_server: Server, url: str, db: PostgresDb) -> AsyncIterator[PostgresDb]:
    """The same database by way of the proxy."""
    address = url.replace(f":{own_server.port}/", f":{proxy.port}/")
    proxied = PostgresDb(f"{address}?sslmode=disable&gssencmode=disable")
    yield proxied
    await proxied.close()


def counted(fn: Callable[[Connection], int]) -> tuple[Callable[[Connection], int], list[int]]:
    runs: list[int] = []

    def counting(connection: Connection) -> int:
        runs.append(1)
        return fn(connection)

    return counting, runs


def end_all_sessions(url: str) -> None:
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = %s"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(others, (admin.info.dbname,))


async def test_connections_that_were_closed_while_idle_are_replaced(db: PostgresDb, url: str, table: Notes) -> None:
    await asyncio.gather(*(db.write(table.add(n)) for n in range(5)), db.read(table.ids))
    end_all_sessions(url)
    assert await db.write(table.add(9)) == 9
    assert await db.read(table.ids) == [0, 1, 2, 3, 4, 9]


async def test_a_connection_lost_before_commit_runs_the_function_again(
    db: PostgresDb, url: str, gate: Gate, table: Notes
) -> None:
    def slow(connection: Connection) -> int:
        table.add(1)(connection)
        gate.hold()
        return table.add(2)(connection)

    fn, runs = counted(slow)
    writing = asyncio.create_task(db.write(fn))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    end_all_sessions(url)
    gate.opened.set()
    assert await writing == 2
    assert len(runs) == 2
    assert await db.read(table.ids) == [1, 2]


async def test_a_function_that_goes_on_over_a_lost_connection_does_nothing_outside_its_transaction(
    db: PostgresDb, url: str
) -> None:
    def goes_on(connection: Connection) -> int:
        first = len(runs) * 10
        ADD.run(connection, id=first, text="")
        if len(runs) == 1:
            end_all_sessions(url)
        with suppress(OperationalError):
            ADD.run(connection, id=first + 1, text="")
        return ADD.run(connection, id=first + 2, text="")

    fn, runs = counted(goes_on)
    assert await db.write(fn) == 1
    assert await db.read(IDS.column) == [20, 21, 22]


async def test_a_session_ended_inside_commit_was_not_committed_and_runs_again(db: PostgresDb, table: Notes) -> None:
    once = [True]
    define = """
    CREATE FUNCTION end_once() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN IF NEW.text = 'ends' THEN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(10); END IF;
    RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER ends AFTER INSERT ON notes DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION end_once()
    """
    await db.write(lambda c: c.exec_driver_sql(define).rowcount)

    def ends_the_first_time(connection: Connection) -> int:
        return table.add(1, "ends" if once and once.pop() else "")(connection)

    fn, runs = counted(ends_the_first_time)
    assert await db.write(fn) == 1
    assert len(runs) == 2
    assert await db.read(table.ids) == [1]


async def test_a_commit_that_never_arrived_runs_again(proxied: PostgresDb, proxy: Proxy, table: Notes) -> None:
    await proxied.write(table.add(1))
    proxy.before = lambda: None
    fn, runs = counted(table.add(2))
    assert await proxied.write(fn) == 2
    assert len(runs) == 2
    assert await proxied.read(table.ids) == [1, 2]


async def test_a_commit_whose_answer_was_lost_is_found_to_have_happened(
    proxied: PostgresDb, proxy: Proxy, table: Notes
) -> None:
    await proxied.write(table.add(1))
    proxy.after = lambda: None
    fn, runs = counted(table.add(2))
    assert await proxied.write(fn) == 2
    assert len(runs) == 1
    assert await proxied.read(table.ids) == [1, 2]


@pytest.mark.parametrize("end", ENDS)
async def test_however_the_line_ended_in_commit_its_fate_is_asked_for(
    proxied: PostgresDb, proxy: Proxy, table: Notes, end: Callable[[socket.socket], None]
) -> None:
    proxy.end = end
    await proxied.write(table.add(1))
    proxy.before = lambda: None
    fn, runs = counted(table.add(2))
    assert await proxied.write(fn) == 2
    assert len(runs) == 2
    proxy.after = lambda: None
    fn, runs = counted(table.add(3))
    assert await proxied.write(fn) == 3
    assert len(runs) == 1
    assert await proxied.read(table.ids) == [1, 2, 3]


def test_only_a_refusal_by_a_server_that_goes_on_says_how_a_commit_ended() -> None:
    silent = psycopg.OperationalError("consuming input failed: server closed the connection unexpectedly")
    assert not is_rejection(silent)
    assert breaks_connection(silent)
    assert not breaks_connection(psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes"))
    assert not breaks_connection(ValueError("of the function itself"))


async def test_a_refused_commit_keeps_its_connection(proxied: PostgresDb, proxy: Proxy, table: Notes) -> None:
    await proxied.write(table.add(1))
    lines = proxy.lines
    with pytest.raises(IntegrityError):
        await proxied.write(table.reply(1, 404))
    await proxied.write(table.add(2))
    assert proxy.lines == lines


async def test_a_line_that_takes_no_commit_is_lost_whatever_the_driver_says(
    proxied: PostgresDb, proxy: Proxy, table: Notes
) -> None:
    """The driver reports that sending failed before it reads that the line is closed."""
    once = [True]

    def crashes_the_first_time(connection: Connection) -> int:
        table.add(1)(connection)
        if once and once.pop():
            proxy.crash()
        return 1

    fn, runs = counted(crashes_the_first_time)
    assert await proxied.write(fn) == 1
    assert len(runs) == 2
    assert await proxied.read(table.ids) == [1]


async def test_lines_that_broke_while_idle_are_replaced_whatever_the_driver_says(
    proxied: PostgresDb, proxy: Proxy, table: Notes
) -> None:
    await proxied.write(table.add(1))
    await proxied.read(table.ids)
    proxy.crash()
    assert await proxied.write(table.add(2)) == 2
    assert await proxied.read(table.ids) == [1, 2]


async def test_it_is_found_also_after_a_clean_restart(
    proxied: PostgresDb, own_server: Server, proxy: Proxy, table: Notes
) -> None:
    await proxied.write(table.add(1))
    proxy.after = own_server.restart
    fn, runs = counted(table.add(2))
    assert await proxied.write(fn) == 2
    assert len(runs) == 1
    assert await proxied.read(table.ids) == [1, 2]


async def test_after_a_crash_it_is_unknown_and_said(
    proxied: PostgresDb, own_server: Server, proxy: Proxy, table: Notes
) -> None:
    """A crash may give a lost transaction's number away, so that number proves nothing any more."""
    await proxied.write(table.add(1))
    proxy.after = lambda: own_server.restart(signal.SIGQUIT)
    fn, runs = counted(table.add(2))
    with pytest.raises(CommitUnknown) as told:
        await proxied.write(fn)
    assert told.value.fix
    assert len(runs) == 1
    assert await proxied.write(table.add(3)) == 3


async def test_after_a_crash_what_was_not_committed_runs_again(
    proxied: PostgresDb, own_server: Server, proxy: Proxy, table: Notes
) -> None:
    await proxied.write(table.add(1))
    proxy.before = lambda: own_server.restart(signal.SIGQUIT)
    assert await proxied.write(table.add(2)) == 2
    assert await proxied.read(table.ids) == [1, 2]


async def test_without_its_mark_a_server_s_word_is_not_taken(
    proxied: PostgresDb, db: PostgresDb, proxy: Proxy, table: Notes
) -> None:
    await db.write(lambda c: c.execute(text("DROP TABLE server_life")).rowcount)
    await proxied.write(table.add(1))
    proxy.after = lambda: None
    with pytest.raises(CommitUnknown):
        await proxied.write(table.add(2))
    assert await proxied.read(table.ids) == [1, 2]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
async def test_restarts_under_load_lose_nothing_acknowledged(
    db: PostgresDb, own_server: Server, table: Notes, how: signal.Signals
) -> None:
    acknowledged: set[int] = set()
    doubtful: set[int] = set()
    stopping = asyncio.Event()

    async def writer(start: int) -> None:
        for note in itertools.count(start, 16):
            if stopping.is_set():
                return
            try:
                acknowledged.add(await db.write(table.add(note)))
            except CommitUnknown:
                doubtful.add(note)

    async def grows(by: int) -> None:
        goal = len(acknowledged) + by
        async with asyncio.timeout(60):
            while len(acknowledged) < goal:
                await asyncio.sleep(0.01)

    writers = [asyncio.create_task(writer(number)) for number in range(16)]
    for _ in range(3):
        await grows(100)
        await asyncio.to_thread(own_server.restart, how)
    await grows(100)
    stopping.set()
    await asyncio.gather(*writers)
    stored = set(await db.read(table.ids))
    assert acknowledged <= stored <= acknowledged | doubtful
    assert len(doubtful) <= 3 * 16
    assert how != signal.SIGINT or not doubtful


async def test_a_server_that_stays_away_is_told_and_found_again(url: str, own_server: Server, table: Notes) -> None:
    db = PostgresDb(url, seconds=0.5)
    await db.write(table.create)
    own_server.stop()
    with pytest.raises(DatabaseError) as told:
        await db.write(table.add(1))
    assert told.value.fix
    own_server.start()
    assert await db.write(table.add(2)) == 2
    assert await db.read(table.ids) == [2]
    await db.close()
