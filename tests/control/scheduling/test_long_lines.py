"""However many jobs wait in line, what is done for one of them costs the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, insert, select
from tests.control.harness import ControlHarness, job_spec

from crucible.control.db import schema as t
from crucible.control.db.sqlite.connection import driver_of
from crucible.control.jobs import listing, queries
from crucible.control.jobs.views import MAX_AHEAD
from crucible.control.reconcile import repository
from crucible.control.reconcile.unit_of_work import UnitOfWork
from crucible.control.runtime.system_ports import SystemIds
from crucible.control.scheduling.state_reader import MAX_CONSIDERED, StateReader
from crucible.core.ids import Prefix
from crucible.core.job.job_filter import JobFilter

MANY = 5000
A_FEW = MANY // 2
"""Further instructions of SQLite's machine: not even one for each job."""


async def test_the_state_of_a_round_is_read_without_looking_at_every_job(two_backends: ControlHarness) -> None:
    harness = two_backends
    last = await a_line(harness)
    few = await instructions(harness, reading(harness))
    await lengthen(harness, last)
    assert await instructions(harness, reading(harness)) < few + A_FEW


async def test_a_queue_that_is_not_connected_costs_no_more(harness: ControlHarness) -> None:
    last = await a_line(harness)
    few = await instructions(harness, reading(harness))
    await lengthen(harness, last, queue="gone")
    await harness.place()
    assert await instructions(harness, reading(harness)) < few + A_FEW


async def test_placing_a_submission_does_not_look_at_every_job(two_backends: ControlHarness) -> None:
    harness = two_backends
    last = await a_line(harness)
    few = await instructions(harness, placing(harness, last))
    last = await lengthen(harness, last)
    assert await instructions(harness, placing(harness, last)) < few + A_FEW


async def test_a_submission_to_a_free_node_does_not_look_at_other_queues(two_backends: ControlHarness) -> None:
    harness = two_backends
    last = await a_line(harness)
    spec = job_spec(backend="ssh")

    def submitting(conn: Connection) -> None:
        stored = harness.submitter.store(UnitOfWork(conn, harness.clock.now()), spec, None)
        world = repository.load_world(conn, stored.job)
        assert world is not None
        assert world.live is not None

    few = await instructions(harness, submitting)
    await lengthen(harness, last)
    assert await instructions(harness, submitting) < few + A_FEW


def reading(harness: ControlHarness) -> Callable[[Connection], None]:
    """Return what a round reads."""

    def read(conn: Connection) -> None:
        state = StateReader(harness.connected, harness.offers).read(conn, harness.clock.now())
        assert len(state.jobs) == MAX_CONSIDERED

    return read


def placing(harness: ControlHarness, job: str) -> Callable[[Connection], None]:
    return lambda conn: harness.scheduler.place_at_once(UnitOfWork(conn, harness.clock.now()), job)


async def test_the_newest_jobs_are_listed_without_the_others(harness: ControlHarness) -> None:
    await lengthen(harness, await a_line(harness))

    def newest(conn: Connection) -> None:
        for active in (True, False):
            assert listing.list_jobs(conn, JobFilter(active=active), 1, None, 0.0).items

    assert await instructions(harness, newest) < MAX_AHEAD * 2 * 20


async def test_a_job_far_behind_says_so(harness: ControlHarness) -> None:
    last = await lengthen(harness, await a_line(harness))
    view = await harness.read(lambda conn: queries.read_job(conn, last, 0.0))
    assert view.waiting == f"behind more than {MAX_AHEAD} other jobs in the queue"


async def a_line(harness: ControlHarness) -> str:
    """Return the last of some jobs, the first of which holds the whole node."""
    return [await harness.submit(cpus=4) for _ in range(70)][-1]


async def lengthen(harness: ControlHarness, like: str, **changed: str) -> str:
    """Add many jobs like this one behind it, and return the last of them."""
    made = SystemIds()
    ids = [made.new(Prefix.JOB) for _ in range(MANY)]

    def add(conn: Connection) -> None:
        row = dict(conn.execute(select(t.jobs).where(t.jobs.c.id == like)).mappings().one())
        conn.execute(insert(t.jobs), [{**row, **changed, "id": job, "backwards": job[::-1]} for job in ids])

    await harness.sql(add)
    return ids[-1]


async def instructions(harness: ControlHarness, fn: Callable[[Connection], None]) -> int:
    """Return how much SQLite has to do for it."""

    def counted(conn: Connection) -> int:
        if conn.dialect.name != "sqlite":
            pytest.skip("only SQLite counts its work")
        with counting(conn) as ticks:
            fn(conn)
        return len(ticks) * 10

    return await harness.sql(counted)


@contextmanager
def counting(conn: Connection) -> Iterator[list[None]]:
    ticks: list[None] = []
    driver_of(conn).set_progress_handler(lambda: ticks.append(None), 10)
    try:
        yield ticks
    finally:
        driver_of(conn).set_progress_handler(None, 10)
