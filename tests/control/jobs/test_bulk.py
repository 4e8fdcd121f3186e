from __future__ import annotations

from typing import Any

from tests.control.harness import ControlHarness, job_spec, service

from crucible.control.db import schema as t
from crucible.control.jobs.bulk import BATCH_SIZE
from crucible.control.resources.jobs import SubmittedJob
from crucible.core.errors import BadInput, Conflict, CrucibleError, NotFound, UnknownName
from crucible.core.job.job_filter import JobFilter
from crucible.core.people.identity import OWNER


def view_of(result: SubmittedJob | CrucibleError) -> Any:
    assert isinstance(result, SubmittedJob)
    return result.view


async def test_many_jobs_are_stored_in_their_order(harness: ControlHarness) -> None:
    count = BATCH_SIZE * 2 + 3
    done = await service(harness).jobs.submit_many(OWNER, [(job_spec(name=f"n{n}"), None) for n in range(count)])
    views = [view_of(one) for one in done]
    assert [view.name for view in views] == [f"n{n}" for n in range(count)]
    assert [view.id for view in views] == sorted(view.id for view in views)
    assert await harness.count(t.jobs) == await harness.count(t.listings) == count


async def test_one_that_is_refused_stops_none_of_the_others(harness: ControlHarness) -> None:
    bad = [
        (job_spec(backend="nowhere"), None),
        (job_spec(bundle="0" * 64), None),
        (job_spec(tags=("=",)), "k9"),
    ]
    done = await service(harness).jobs.submit_many(OWNER, [(job_spec(), None), *bad, (job_spec(), None)])
    assert [type(one) for one in done] == [SubmittedJob, UnknownName, BadInput, BadInput, SubmittedJob]
    assert await harness.count(t.jobs) == 2
    assert await harness.count(t.idempotency) == 0


async def test_a_key_makes_one_job_also_within_a_batch(harness: ControlHarness) -> None:
    control = service(harness)
    orders = [(job_spec(), "a"), (job_spec(), "a"), (job_spec(name="x"), "a"), (job_spec(), "b")]
    first, again, other, second = await control.jobs.submit_many(OWNER, orders)
    assert view_of(first).id == view_of(again).id != view_of(second).id
    assert [isinstance(one, SubmittedJob) and one.created for one in (first, again, second)] == [True, False, True]
    assert isinstance(other, Conflict)
    repeated = await control.jobs.submit_many(OWNER, orders)
    assert view_of(repeated[0]).id == view_of(first).id
    assert await harness.count(t.jobs) == 2


async def test_jobs_are_cancelled_by_a_filter(harness: ControlHarness) -> None:
    control = service(harness)
    keep = await harness.submit(cpus=4)
    meant = [await harness.submit(cpus=4, tags=("old",)) for _ in range(3)]
    tagged = JobFilter(tag=("old",))
    views, more = await control.jobs.cancel_matching(OWNER, tagged, limit=2, dry_run=True)
    assert ([view.id for view in views], more) == (meant[:0:-1], True)
    assert {view.desired for view in views} == {"run"}
    views, more = await control.jobs.cancel_matching(OWNER, tagged, limit=10, dry_run=False)
    assert ({view.id for view in views}, more) == (set(meant), False)
    assert {view.status for view in views} == {"cancelled"}
    assert (await control.jobs.view(OWNER, keep)).desired == "run"
    assert await control.jobs.cancel_matching(OWNER, tagged, limit=10, dry_run=False) == ([], False)


async def test_jobs_are_cancelled_by_their_ids(harness: ControlHarness) -> None:
    control = service(harness)
    running, _ = await harness.running(cpus=4)
    queued = await harness.submit(cpus=4)
    refs = [queued, "zzzzzz", running[-8:], queued[-8:], "%"]
    planned = await control.jobs.cancel_named(OWNER, refs, dry_run=True)
    assert [isinstance(one, NotFound) for one in planned] == [False, True, False, False, True]
    assert (await control.jobs.view(OWNER, queued)).status == "queued"
    done: Any = await control.jobs.cancel_named(OWNER, refs, dry_run=False)
    assert (done[0].status, done[2].desired) == ("cancelled", "cancel")
    assert done[0] == done[3]
