from __future__ import annotations

import pytest
from sqlalchemy import insert
from tests.control.fakes import START
from tests.control.world import Rig, job_spec, service

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


async def find(rig: Rig, ref: str) -> str:
    return (await rig.read(lambda conn: queries.find_job(conn, ref))).id


async def add(rig: Rig, *names: str) -> None:
    rows = [codec.job_row(Job(name, job_spec(), Resources(cpus=1), START)) for name in names]
    await rig.sql(lambda conn: conn.execute(insert(t.jobs), rows).rowcount)


# Finding


async def test_a_job_is_found_by_its_id_and_by_any_ending(rig: Rig) -> None:
    await add(rig, A, B)
    for ref in (A, A.upper(), short(A), A[-6:], A[-4:], A[-4:].upper(), "job-" + A[-4:], A[-20:]):
        assert await find(rig, ref) == A


async def test_an_ending_of_several_is_a_conflict_that_names_them(rig: Rig) -> None:
    await add(rig, A, B)
    assert A[-3:] == B[-3:]
    with pytest.raises(Conflict) as raised:
        await find(rig, A[-3:])
    assert set(raised.value.data["candidates"]) == {short(A), short(B)}  # type: ignore[call-overload]


async def test_last_is_the_newest(rig: Rig) -> None:
    with pytest.raises(NotFound):
        await find(rig, "last")
    await add(rig, A, B)
    assert await find(rig, "last") == B


@pytest.mark.parametrize("ref", ["", "ab", "zzzzzz", "job-", "%%%", "___", "a%3", "'; --", make_id(Prefix.JOB, 9, 9)])
async def test_what_names_no_job(rig: Rig, ref: str) -> None:
    await add(rig, A)
    with pytest.raises(NotFound):
        await find(rig, ref)


async def test_a_machines_id_names_no_job(rig: Rig) -> None:
    await rig.submit()
    with pytest.raises(NotFound):
        await find(rig, (await rig.machine()).id)


# One job


async def test_no_such_job(rig: Rig) -> None:
    with pytest.raises(NotFound):
        await rig.read(lambda conn: queries.read_job(conn, A, START))


# Events, artifacts, metrics, machines


async def test_events_of_a_job_by_number_and_of_all_by_cursor(rig: Rig) -> None:
    one, two = await rig.submit(), await rig.submit()
    mine = await rig.read(lambda conn: queries.list_events(conn, one, 1, 100).items)
    assert [(e.n, e.type) for e in mine] == [(2, "queued"), (3, "placed")]
    everything = await rig.read(lambda conn: queries.list_events(conn, None, 0, 4).items)
    assert [(e.cursor, e.job) for e in everything] == [(1, one), (2, one), (3, one), (4, two)]
    rest = await rig.read(lambda conn: queries.list_events(conn, None, 4, 100).items)
    assert [e.cursor for e in rest] == [5, 6]


async def test_of_each_artifact_the_newest_attempts(rig: Rig) -> None:
    job, runner = await rig.running(retries={"user": 1, "wait_seconds": 0})
    for path in ("b", "a"):
        await runner.say(MessageKind.ARTIFACT, path=path, size=1, sha256="a" * 64)
    await runner.end(code=1)
    await rig.place()
    again = await rig.runner(job)
    await again.say(MessageKind.ARTIFACT, path="b", size=2, sha256="b" * 64)
    found = await rig.read(lambda conn: queries.list_artifacts(conn, job).items)
    assert [(a.path, a.size, a.attempt) for a in found] == [("a", 1, 1), ("b", 2, 2)]


async def test_metrics_are_of_the_latest_attempt_that_has_some(rig: Rig) -> None:
    job, runner = await rig.running(retries={"user": 1, "wait_seconds": 0})
    assert await rig.read(lambda conn: queries.read_metrics(conn, job, [], 10)) == MetricsView()
    await runner.say(MessageKind.POINTS, series={"loss": [[0, 2.0, 5], [1, None, 6], [2, 1.0, 7]]})
    await runner.end(code=1)
    await rig.place()
    found = await rig.read(lambda conn: queries.read_metrics(conn, job, [], 10))
    points = ((0.0, 2.0, 5.0), (1.0, None, 6.0), (2.0, 1.0, 7.0))
    loss = SeriesView(count=3, last=1.0, min=1.0, max=2.0, points=points)
    assert found == MetricsView(attempt=1, series={"loss": loss})


async def test_machines_and_what_is_going_on(rig: Rig) -> None:
    assert await rig.read(queries.count_jobs) == queries.Counts(running=0, queued=0, billing=0)
    await rig.running(cpus=4)
    await rig.submit(cpus=4)
    assert await rig.read(queries.count_jobs) == queries.Counts(running=1, queued=1, billing=0)
    (machine,) = (await rig.read(lambda conn: queries.list_machines(conn, rig.clock.now()))).items
    assert (machine.state, machine.cost_micros, machine.bills) == ("up", 0, False)


async def test_what_bills_is_counted_until_it_is_gone(rig: Rig) -> None:
    await rig.running()
    await rig.sql(lambda conn: conn.execute(t.machines.update().values(rate=5, bills=True)).rowcount)
    assert (await rig.read(queries.count_jobs)).billing == 1
    await rig.sql(lambda conn: conn.execute(t.machines.update().values(state="gone")).rowcount)
    assert (await rig.read(queries.count_jobs)).billing == 0


async def detail_of(rig: Rig, job: str) -> JobView:
    return await rig.read(lambda conn: queries.read_job_detail(conn, job, rig.clock.now()))


async def test_job_detail_holds_the_view_the_health_and_the_metrics_of_the_last_attempt(rig: Rig) -> None:
    job, runner = await rig.running()
    await runner.say(MessageKind.POINTS, series={"loss": [[1, 0.5, 2]]})
    found, now = await detail_of(rig, job), rig.clock.now()
    view = (await rig.read(lambda conn: queries.read_job(conn, job, now))).as_json()
    assert {name: found.as_json()[name] for name in view} == view
    assert found.health == await rig.read(lambda conn: queries.read_health(conn, job, now))
    assert found.metrics == {"loss": 0.5}


async def test_a_job_that_waits_has_nothing_yet(rig: Rig) -> None:
    found = await service(rig).jobs.details(OWNER, await rig.submit())
    assert (found.metrics, found.result, found.notes, found.predicted_seconds) == ({}, None, (), None)
    assert found.plan is None
    assert found.model_fields_set >= {"metrics", "health", "result", "notes", "predicted_seconds", "plan"}


async def test_job_detail_of_a_job_that_does_not_exist(rig: Rig) -> None:
    with pytest.raises(NotFound):
        await detail_of(rig, make_id(Prefix.JOB, 1, 1))
