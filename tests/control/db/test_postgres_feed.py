"""The all-jobs feed: whoever has read as far as a cursor has read everything before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import Connection, insert, text
from tests.control.harness import job_spec

from crucible.control.db import open_database
from crucible.control.db import schema as t
from crucible.control.db.port import Db
from crucible.control.db.postgres.database import PostgresDb
from crucible.control.jobs.queries import list_events
from crucible.control.reconcile import codec
from crucible.core.compute.resources import Resources
from crucible.core.ids import Prefix, make_id
from crucible.core.lifecycle import Job

if TYPE_CHECKING:
    from tests.control.db.conftest import Gate

JOBS = [make_id(Prefix.JOB, 1_700_000_000_000, n << 20) for n in range(8)]


async def with_jobs(db: Db) -> Db:
    jobs = [codec.job_row(Job(job, job_spec(), Resources(), created_at=0.0)) for job in JOBS]
    await db.write(lambda c: c.execute(insert(t.jobs), jobs).rowcount)
    return db


@pytest.fixture
async def db(postgres_url: str) -> AsyncIterator[Db]:
    db = await with_jobs(open_database(postgres_url))
    yield db
    await db.close()


@pytest.fixture
async def numbered_at_insert(postgres_url: str) -> AsyncIterator[Db]:
    """The same tables with nothing but the sequence."""
    db = PostgresDb(postgres_url)
    await db.write(t.metadata.create_all)
    await with_jobs(db)
    yield db
    await db.close()


def event(job: str, n: int, then: Callable[[], None] = lambda: None) -> Callable[[Connection], None]:
    def fn(connection: Connection) -> None:
        connection.execute(insert(t.events), [{"job": job, "n": n, "type": "note", "at": 0.0, "data": "{}"}])
        then()

    return fn


async def read_on(db: Db, after: int) -> tuple[list[tuple[str, int]], int]:
    """What a reader gets that has read as far as `after`, and how far it has read then."""
    found = (await db.read(lambda c: list_events(c, None, after, 1000))).items
    return [(event.job, event.n) for event in found], found[-1].cursor if found else after


async def overtaken(db: Db, gate: Gate) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """One inserts and waits, another inserts and commits; a reader reads; the first commits; it reads on."""
    slow = asyncio.create_task(db.write(event(JOBS[0], 1, gate.hold)))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    await db.write(event(JOBS[1], 1))
    first, cursor = await read_on(db, 0)
    gate.opened.set()
    await slow
    second, _ = await read_on(db, cursor)
    return first, second


async def test_numbers_given_at_insert_hide_what_commits_late(numbered_at_insert: Db, gate: Gate) -> None:
    assert await overtaken(numbered_at_insert, gate) == ([(JOBS[1], 1)], [])


async def test_numbers_given_at_commit_hide_nothing(db: Db, gate: Gate) -> None:
    assert await overtaken(db, gate) == ([(JOBS[1], 1)], [(JOBS[0], 1)])


async def test_a_reader_that_follows_many_writers_gets_every_event_once_and_in_order(db: Db) -> None:
    async def writer(job: str) -> None:
        for n in range(1, 31):
            await db.write(event(job, n))

    async def follow() -> list[tuple[str, int]]:
        got: list[tuple[str, int]] = []
        cursor = 0
        while len(got) < len(JOBS) * 30:
            found, cursor = await read_on(db, cursor)
            got.extend(found)
        return got

    async with asyncio.timeout(60):
        got, *_ = await asyncio.gather(follow(), *(writer(job) for job in JOBS))
    assert sorted(got) == [(job, n) for job in JOBS for n in range(1, 31)]
    for job in JOBS:
        assert [n for j, n in got if j == job] == list(range(1, 31))


async def test_several_events_of_one_write_stay_together_in_their_order(db: Db) -> None:
    def several(job: str) -> Callable[[Connection], None]:
        rows = [{"job": job, "n": n, "type": "note", "at": 0.0, "data": "{}"} for n in range(1, 6)]
        return lambda c: c.execute(insert(t.events), rows).close()

    await asyncio.gather(*(db.write(several(job)) for job in JOBS))
    found, cursor = await read_on(db, 0)
    groups = [found[start : start + 5] for start in range(0, 40, 5)]
    assert all([n for _, n in group] == [1, 2, 3, 4, 5] and len({j for j, _ in group}) == 1 for group in groups)
    assert cursor >= 40


async def test_a_restored_event_keeps_its_number(db: Db, postgres_url: str) -> None:
    row = "INSERT INTO events (cursor, job, n, type, at, data) VALUES (77, %s, 1, 'note', 0, '{}')"
    with psycopg.connect(postgres_url) as restoring:
        restoring.execute(row, (JOBS[0],))
    assert (await read_on(db, 0))[1] == 77


async def test_on_sqlite_nothing_is_added() -> None:
    from crucible.control.db import InlineDb
    from crucible.control.db.migrate import create_schema

    db = InlineDb()
    await db.write(create_schema)
    triggers = text("SELECT count(*) FROM sqlite_master WHERE type = 'trigger'")
    assert await db.read(lambda c: c.execute(triggers).scalar()) == 0
    await db.close()
