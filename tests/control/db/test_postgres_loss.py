"""Connections that break and servers that restart: nothing acknowledged is lost, nothing is done twice."""

from __future__ import annotations

import asyncio
import itertools
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import Connection, text
from tests.postgres import Server, server

from crucible.control.db import DatabaseError, open_database
from crucible.control.db.postgres import PostgresDb
from crucible.control.db.postgres_failures import CommitUnknown

if TYPE_CHECKING:
    from tests.control.db.conftest import Gate, Notes

pytestmark = pytest.mark.enable_socket

COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"


class Proxy:
    """Stands between client and server, and cuts the line at the next COMMIT: before it is passed on, or after
    the server has answered it, with something done in between.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.before: Callable[[], None] | None = None
        self.after: Callable[[], None] | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self._server_port)) as upstream:
            deaf = threading.Event()
            threading.Thread(target=_pump, args=(upstream, client, deaf), daemon=True).start()
            while data := client.recv(65536):
                if COMMIT in data and self._cut(upstream, data, deaf):
                    return
                upstream.sendall(data)

    def _cut(self, upstream: socket.socket, data: bytes, deaf: threading.Event) -> bool:
        if self.before or self.after:
            deaf.set()  # what the server says from here on reaches nobody
        if self.before is not None:
            act, self.before = self.before, None
            act()
        elif self.after is not None:
            act, self.after = self.after, None
            upstream.sendall(data)
            _let_commit(self._server_port)
            act()
        else:
            return False
        with suppress(OSError):
            upstream.shutdown(socket.SHUT_RDWR)
        return True


def _pump(source: socket.socket, target: socket.socket, deaf: threading.Event) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            if not deaf.is_set():
                target.sendall(data)
        if not deaf.is_set():
            target.shutdown(socket.SHUT_WR)


def _let_commit(port: int) -> None:
    """Waits until no transaction is open that writes."""
    busy = "SELECT 1 FROM pg_stat_activity WHERE backend_xid IS NOT NULL"
    with psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres", autocommit=True) as watcher:
        end = time.monotonic() + 30
        while watcher.execute(busy).fetchone():
            assert time.monotonic() < end


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
async def through(proxy: Proxy, own_server: Server, url: str, db: PostgresDb) -> AsyncIterator[PostgresDb]:
    """The same database by way of the proxy."""
    address = url.replace(f":{own_server.port}/", f":{proxy.port}/")
    through = PostgresDb(f"{address}?sslmode=disable&gssencmode=disable")
    yield through
    await through.close()


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


async def test_a_commit_that_never_arrived_runs_again(through: PostgresDb, proxy: Proxy, table: Notes) -> None:
    await through.write(table.add(1))
    proxy.before = lambda: None
    fn, runs = counted(table.add(2))
    assert await through.write(fn) == 2
    assert len(runs) == 2
    assert await through.read(table.ids) == [1, 2]


async def test_a_commit_whose_answer_was_lost_is_found_to_have_happened(
    through: PostgresDb, proxy: Proxy, table: Notes
) -> None:
    await through.write(table.add(1))
    proxy.after = lambda: None
    fn, runs = counted(table.add(2))
    assert await through.write(fn) == 2
    assert len(runs) == 1
    assert await through.read(table.ids) == [1, 2]


async def test_it_is_found_also_after_a_clean_restart(
    through: PostgresDb, own_server: Server, proxy: Proxy, table: Notes
) -> None:
    await through.write(table.add(1))
    proxy.after = own_server.restart
    fn, runs = counted(table.add(2))
    assert await through.write(fn) == 2
    assert len(runs) == 1
    assert await through.read(table.ids) == [1, 2]


async def test_after_a_crash_it_is_unknown_and_said(
    through: PostgresDb, own_server: Server, proxy: Proxy, table: Notes
) -> None:
    """A crash may give a lost transaction's number away, so that number proves nothing any more."""
    await through.write(table.add(1))
    proxy.after = lambda: own_server.restart(signal.SIGQUIT)
    fn, runs = counted(table.add(2))
    with pytest.raises(CommitUnknown) as told:
        await through.write(fn)
    assert told.value.fix
    assert len(runs) == 1
    assert await through.write(table.add(3)) == 3


async def test_after_a_crash_what_was_not_committed_runs_again(
    through: PostgresDb, own_server: Server, proxy: Proxy, table: Notes
) -> None:
    await through.write(table.add(1))
    proxy.before = lambda: own_server.restart(signal.SIGQUIT)
    assert await through.write(table.add(2)) == 2
    assert await through.read(table.ids) == [1, 2]


async def test_without_its_mark_a_server_s_word_is_not_taken(
    through: PostgresDb, db: PostgresDb, proxy: Proxy, table: Notes
) -> None:
    await db.write(lambda c: c.execute(text("DROP TABLE server_life")).rowcount)
    await through.write(table.add(1))
    proxy.after = lambda: None
    with pytest.raises(CommitUnknown):
        await through.write(table.add(2))
    assert await through.read(table.ids) == [1, 2]


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
    assert how == signal.SIGQUIT or not doubtful


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
