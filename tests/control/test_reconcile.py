from __future__ import annotations

from tests.control.world import Rig, other_worker

from crucible.backends.base import Seen
from crucible.control.db import schema as t
from crucible.control.reconcile import CLAIM_SECONDS
from crucible.core.lifecycle import JobState
from crucible.core.lifecycle.silence import NOTICE_AFTER, SETTLE_WINDOW
from crucible.wire.messages import Kind


async def events(rig: Rig, job: str) -> list[str]:
    return [e["type"] for e in await rig.rows(t.events) if e["job"] == job]


async def test_a_round_with_nothing_to_do_writes_nothing(rig: Rig) -> None:
    job, _ = await rig.running()
    before = await rig.rows(t.jobs)
    await rig.reconciler.round()
    assert await rig.rows(t.jobs) == before
    assert (await rig.world(job)).job.due_at is not None


async def test_a_silent_job_is_shown_as_unreachable_and_nothing_else(rig: Rig) -> None:
    job, runner = await rig.running()
    for _ in range(5):
        rig.clock.move(NOTICE_AFTER)
        await rig.reconciler.round()
    world = await rig.world(job)
    assert world.job.conditions == {"unreachable"}
    assert world.job.state is JobState.RUNNING
    assert (await events(rig, job)).count("unreachable") == 1
    await runner.say(Kind.NOTE, text="back")
    assert (await rig.world(job)).job.conditions == frozenset()
    assert (await events(rig, job))[-2:] == ["reachable", "note"]


async def test_a_job_is_looked_at_when_it_is_due_and_not_before(rig: Rig) -> None:
    job, _ = await rig.running()
    rig.clock.move(NOTICE_AFTER - 1)
    await rig.reconciler.round()
    assert (await rig.world(job)).job.conditions == frozenset()
    rig.clock.move(1)
    await rig.reconciler.round()
    assert (await rig.world(job)).job.conditions == {"unreachable"}
    due = (await rig.world(job)).job.due_at
    assert due is not None
    assert due > rig.clock.now(), "it is looked at again, later"


async def test_a_lost_machines_job_is_tried_again_elsewhere_after_its_wait(rig: Rig) -> None:
    job, _ = await rig.running()
    first = await rig.machine()
    rig.backend.show(first.id, Seen.GONE)
    for _ in range(2):
        await rig.poller.poll()
    rig.clock.move(SETTLE_WINDOW)
    await rig.reconciler.round()
    world = await rig.world(job)
    assert world.job.state is JobState.QUEUED
    assert world.job.not_before > rig.clock.now()
    rig.clock.time = world.job.not_before - 0.1
    await rig.reconciler.round()
    assert (await rig.world(job)).live is None
    rig.clock.move(0.1)
    await rig.reconciler.round()
    live = (await rig.world(job)).live
    assert live is not None
    assert live.number == 2
    assert live.slots[0].machine != first.id


async def test_the_slots_of_a_lost_job_go_to_the_next_in_the_same_commit(rig: Rig) -> None:
    job = await rig.submit(cpus=4, retries={"infrastructure": 0})
    waiting = await rig.submit(cpus=4)
    await rig.host_up()
    rig.backend.show((await rig.machine()).id, Seen.GONE)
    for _ in range(2):
        await rig.poller.poll()
    rig.clock.move(SETTLE_WINDOW)
    await rig.reconciler.round()
    assert (await rig.world(job)).job.state is JobState.FAILED
    assert (await rig.world(waiting)).live is not None


async def test_whatever_was_queued_elsewhere_is_placed(rig: Rig) -> None:
    other = await other_worker(rig, "w2")
    job = await other.submit()
    await rig.reconciler.round()
    assert (await rig.world(job)).live is not None


async def test_a_job_that_another_sweep_looks_at_is_left_alone_for_a_while(rig: Rig) -> None:
    job, _ = await rig.running()
    rig.clock.move(NOTICE_AFTER)
    held = {"claimed_by": "w2", "claimed_until": rig.clock.now() + CLAIM_SECONDS}
    await rig.sql(lambda conn: conn.execute(t.jobs.update().values(held)).rowcount)
    await rig.reconciler.round()
    assert (await rig.world(job)).job.conditions == frozenset()
    rig.clock.move(CLAIM_SECONDS)
    await rig.reconciler.round()
    assert (await rig.world(job)).job.conditions == {"unreachable"}
    (row,) = await rig.rows(t.jobs)
    assert row["claimed_by"] is None


async def test_contacts_are_stored_before_silence_is_judged(rig: Rig) -> None:
    job, runner = await rig.running()
    rig.clock.move(NOTICE_AFTER)
    rig.contacts.attempt(runner.attempt, rig.clock.now())
    await rig.reconciler.round()
    assert (await rig.world(job)).job.conditions == frozenset()
    assert (await rig.attempt(job)).last_seen == rig.clock.now()
