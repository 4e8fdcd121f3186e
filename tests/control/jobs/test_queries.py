from __future__ import annotations

import pytest
from sqlalchemy import insert
from tests.control.fakes import START
from tests.control.harness import ControlHarness, job_spec, service

from crucible.control.db import schema as t
from crucible.control.jobs import queries
from crucible.control.reconcile import codec
from crucible.core.compute.resources import Resources
from crucible.core.errors import Conflict, NotFound
from crucible.core.ids import Prefix, make_id, short
from crucible.core.lifecycle import Job
from crucible.core.people.identity import OWNER
from crucible.core.views.jobs import JobView
from crucible.core.views.records import MetricsView, SeriesView
from crucible.wire.documents.messages import MessageKind

A = make_id(Prefix.JOB, 1, 0b00001_00001_00010_00011)
B = make_id(Prefix.JOB, 2, 0b00010_00001_00010_00011)


async def find(harness: ControlHarness, ref: str) -> str:
    return (await harness.read(lambda conn: queries.find_job(conn, ref))).id


async def add(harness: ControlHarness, *names: str) -> None:
    rows = [codec.job_row(Job(name, job_spec(), Resources(cpus=1), START)) for name in names]
    await harness.sql(lambda conn: conn.execute(insert(t.jobs), rows).rowcount)


# Finding


async def test_a_job_is_found_by_its_id_and_by_any_ending(harness: ControlHarness) -> None:
    await add(harness, A, B)
    for ref in (A, A.upper(), short(A), A[-6:], A[-4:], A[-4:].upper(), "job-" + A[-4:], A[-20:]):
        assert await find(harness, ref) == A


async def test_an_ending_of_several_is_a_conflict_that_names_them(harness: ControlHarness) -> None:
    await add(harness, A, B)
    assert A[-3:] == B[-3:]
    with pytest.raises(Conflict) as raised:
        await find(harness, A[-3:])
    assert set(raised.value.data["candidates"]) == {short(A), short(B)}  # type: ignore[call-overload]


async def test_last_is_the_newest(harness: ControlHarness) -> None:
    with pytest.raises(NotFound):
        await find(harness, "last")
    await add(harness, A, B)
    assert await find(harness, "last") == B


@pytest.mark.parametrize("ref", ["", "ab", "zzzzzz", "job-", "%%%", "___", "a%3", "'; --", make_id(Prefix.JOB, 9, 9)])
async def test_what_names_no_job(harness: ControlHarness, ref: str) -> None:
    await add(harness, A)
    with pytest.raises(NotFound):
        await find(harness, ref)


async def test_a_machines_id_names_no_job(harness: ControlHarness) -> None:
    await harness.submit()
    with pytest.raises(NotFound):
        await find(harness, (await harness.machine()).id)


# One job


async def test_no_such_job(harness: ControlHarness) -> None:
    with pytest.raises(NotFound):
        await harness.read(lambda conn: queries.read_job(conn, A, START))


# Events, artifacts, metrics, machines


async def test_events_of_a_job_by_number_and_of_all_by_cursor(harness: ControlHarness) -> None:
    one, two = await harness.submit(), await harness.submit()
    mine = await harness.read(lambda conn: queries.list_events(conn, one, 1, 100).items)
    assert [(e.n, e.type) for e in mine] == [(2, "queued"), (3, "placed")]
    everything = await harness.read(lambda conn: queries.list_events(conn, None, 0, 4).items)
    assert [(e.cursor, e.job) for e in everything] == [(1, one), (2, one), (3, one), (4, two)]
    rest = await harness.read(lambda conn: queries.list_events(conn, None, 4, 100).items)
    assert [e.cursor for e in rest] == [5, 6]


async def test_of_each_artifact_the_newest_attempts(harness: ControlHarness) -> None:
    job, runner = await harness.running(retries={"user": 1, "wait_seconds": 0})
    for path in ("b", "a"):
        await runner.say(MessageKind.ARTIFACT, path=path, size=1, sha256="a" * 64)
    await runner.end(code=1)
    await harness.place()
    again = await harness.runner(job)
    await again.say(MessageKind.ARTIFACT, path="b", size=2, sha256="b" * 64)
    found = await harness.read(lambda conn: queries.list_artifacts(conn, job).items)
    assert [(a.path, a.size, a.attempt) for a in found] == [("a", 1, 1), ("b", 2, 2)]


async def test_metrics_are_of_the_latest_attempt_that_has_some(harness: ControlHarness) -> None:
    job, runner = await harness.running(retries={"user": 1, "wait_seconds": 0})
    assert await harness.read(lambda conn: queries.read_metrics(conn, job, [], 10)) == MetricsView()
    await runner.say(MessageKind.POINTS, series={"loss": [[0, 2.0, 5], [1, None, 6], [2, 1.0, 7]]})
    await runner.end(code=1)
    await harness.place()
    found = await harness.read(lambda conn: queries.read_metrics(conn, job, [], 10))
    points = ((0.0, 2.0, 5.0), (1.0, None, 6.0), (2.0, 1.0, 7.0))
    loss = SeriesView(count=3, last=1.0, min=1.0, max=2.0, points=points)
    assert found == MetricsView(attempt=1, series={"loss": loss})


async def test_machines_and_what_is_going_on(harness: ControlHarness) -> None:
    assert await harness.read(queries.count_jobs) == queries.Counts(running=0, queued=0, billing=0)
    await harness.running(cpus=4)
    await harness.submit(cpus=4)
    assert await harness.read(queries.count_jobs) == queries.Counts(running=1, queued=1, billing=0)
    (machine,) = (await harness.read(lambda conn: queries.list_machines(conn, harness.clock.now()))).items
    assert (machine.state, machine.cost_micros, machine.bills) == ("up", 0, False)


async def test_what_bills_is_counted_until_it_is_gone(harness: ControlHarness) -> None:
    await harness.running()
    await harness.sql(lambda conn: conn.execute(t.machines.update().values(rate=5, bills=True)).rowcount)
    assert (await harness.read(queries.count_jobs)).billing == 1
    await harness.sql(lambda conn: conn.execute(t.machines.update().values(state="gone")).rowcount)
    assert (await harness.read(queries.count_jobs)).billing == 0


async def detail_of(harness: ControlHarness, job: str) -> JobView:
    return await harness.read(lambda conn: queries.read_job_detail(conn, job, harness.clock.now()))


async def test_job_detail_holds_the_view_the_health_and_the_metrics_of_the_last_attempt(
    harness: ControlHarness,
) -> None:
    job, runner = await harness.running()
    await runner.say(MessageKind.POINTS, series={"loss": [[1, 0.5, 2]]})
    found, now = await detail_of(harness, job), harness.clock.now()
    view = (await harness.read(lambda conn: queries.read_job(conn, job, now))).as_json()
    assert {name: found.as_json()[name] for name in view} == view
    assert found.health == await harness.read(lambda conn: queries.read_health(conn, job, now))
    assert found.metrics == {"loss": 0.5}


async def test_a_job_that_waits_has_nothing_yet(harness: ControlHarness) -> None:
    found = await service(harness).jobs.details(OWNER, await harness.submit())
    assert (found.metrics, found.result, found.notes, found.predicted_seconds) == ({}, None, (), None)
    assert found.plan is None
    assert found.model_fields_set >= {"metrics", "health", "result", "notes", "predicted_seconds", "plan"}


async def test_job_detail_of_a_job_that_does_not_exist(harness: ControlHarness) -> None:
    with pytest.raises(NotFound):
        await detail_of(harness, make_id(Prefix.JOB, 1, 1))
