from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from sqlalchemy import Connection
from tests.control.harness import ControlHarness, other_worker

from crucible.backends.base import Seen
from crucible.control.db import schema as t
from crucible.control.db.port import Db
from crucible.control.reconcile.reconciler import CLAIM_SECONDS, GAP_SECONDS, POSTPONE_SECONDS, Reconciler
from crucible.core.errors import DiskFull
from crucible.core.lifecycle import JobState, Reason
from crucible.core.lifecycle.advance import CHECK_AGAIN
from crucible.core.lifecycle.reasons import Retry
from crucible.core.lifecycle.silence import NOTICE_AFTER, SETTLE_WINDOW
from crucible.wire.documents.messages import MessageKind

T = TypeVar("T")


async def events(harness: ControlHarness, job: str) -> list[str]:
    return [e["type"] for e in await harness.rows(t.events) if e["job"] == job]


async def test_a_round_with_nothing_to_do_writes_nothing(harness: ControlHarness) -> None:
    job, _ = await harness.running()
    before = await harness.rows(t.jobs)
    await harness.reconciler.round()
    assert await harness.rows(t.jobs) == before
    assert (await harness.world(job)).job.due_at is not None


async def test_a_silent_job_is_shown_as_unreachable_and_nothing_else(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await harness.listen(5 * NOTICE_AFTER)
    world = await harness.world(job)
    assert world.job.conditions == {"unreachable"}
    assert world.job.state is JobState.RUNNING
    assert (await events(harness, job)).count("unreachable") == 1
    await runner.say(MessageKind.NOTE, text="back")
    assert (await harness.world(job)).job.conditions == frozenset()
    assert (await events(harness, job))[-2:] == ["reachable", "note"]


async def test_a_job_is_looked_at_when_it_is_due_and_not_before(harness: ControlHarness) -> None:
    job, _ = await harness.running()
    await harness.listen(NOTICE_AFTER - 1)
    assert (await harness.world(job)).job.conditions == frozenset()
    harness.clock.move(1)
    await harness.reconciler.round()
    assert (await harness.world(job)).job.conditions == {"unreachable"}
    due = (await harness.world(job)).job.due_at
    assert due is not None
    assert due > harness.clock.now(), "it is looked at again, later"


async def test_a_lost_machines_job_is_tried_again_elsewhere_after_its_wait(harness: ControlHarness) -> None:
    job, _ = await harness.running()
    first = await harness.machine()
    harness.backend.show(first.id, Seen.GONE)
    for _ in range(2):
        await harness.poller.poll()
    harness.clock.move(SETTLE_WINDOW)
    await harness.reconciler.round()
    world = await harness.world(job)
    assert world.job.state is JobState.QUEUED
    assert world.job.not_before > harness.clock.now()
    harness.clock.time = world.job.not_before - 0.1
    await harness.reconciler.round()
    assert (await harness.world(job)).live is None
    harness.clock.move(0.1)
    await harness.reconciler.round()
    live = (await harness.world(job)).live
    assert live is not None
    assert live.number == 2
    assert live.slots[0].machine != first.id


async def test_the_slots_of_a_lost_job_go_to_the_next_in_the_same_commit(harness: ControlHarness) -> None:
    job, _ = await harness.running(cpus=4, retries={"infrastructure": 0})
    waiting = await harness.submit(cpus=4)
    harness.backend.show((await harness.machine()).id, Seen.GONE)
    for _ in range(2):
        await harness.poller.poll()
    harness.clock.move(SETTLE_WINDOW)
    await harness.reconciler.round()
    assert (await harness.world(job)).job.state is JobState.FAILED
    assert (await harness.world(waiting)).live is not None


async def test_whatever_was_queued_elsewhere_is_placed(harness: ControlHarness) -> None:
    other = await other_worker(harness, "w2")
    job = await other.submit()
    await harness.reconciler.round()
    assert (await harness.world(job)).live is not None


async def test_a_job_that_another_sweep_looks_at_is_left_alone_for_a_while(harness: ControlHarness) -> None:
    job, _ = await harness.running()
    await harness.listen(NOTICE_AFTER - 1)
    harness.clock.move(1)
    held = {"claimed_by": "w2", "claimed_until": harness.clock.now() + CLAIM_SECONDS}
    await harness.sql(lambda conn: conn.execute(t.jobs.update().values(held)).rowcount)
    await harness.reconciler.round()
    assert (await harness.world(job)).job.conditions == frozenset()
    harness.clock.move(CLAIM_SECONDS)
    await harness.reconciler.round()
    assert (await harness.world(job)).job.conditions == {"unreachable"}
    (row,) = await harness.rows(t.jobs)
    assert row["claimed_by"] is None


async def test_a_machine_lost_before_the_job_began_charges_nothing(harness: ControlHarness) -> None:
    job = await harness.submit(retries={"infrastructure": 0})
    await harness.host_up()
    harness.backend.show((await harness.machine()).id, Seen.GONE)
    for _ in range(2):
        await harness.poller.poll()
    harness.clock.move(SETTLE_WINDOW)
    await harness.reconciler.round()
    world = await harness.world(job)
    assert (world.job.state, world.attempts[0].reason) == (JobState.QUEUED, Reason.NOT_BEGUN)
    assert world.job.used == {Retry.UNBEGUN: 1}


@pytest.mark.parametrize("gap", [GAP_SECONDS + 1, 3600.0])
async def test_while_nobody_listened_nobody_was_silent(harness: ControlHarness, gap: float) -> None:
    job, _ = await harness.running()
    await harness.listen(5)
    harness.clock.move(gap)
    await harness.listen(NOTICE_AFTER - 1)
    assert (await harness.world(job)).job.conditions == frozenset()
    await harness.listen(CHECK_AGAIN)
    assert (await harness.world(job)).job.conditions == {"unreachable"}


class StalledDb:
    """A database whose next write takes its process an hour, once somebody says so."""

    def __init__(self, harness: ControlHarness) -> None:
        self._rig = harness
        self.stands_still = False

    async def write(self, fn: Callable[[Connection], T]) -> T:
        answer = await self._rig.ports.db.write(fn)
        if self.stands_still:
            self.stands_still = False
            self._rig.clock.move(3600.0)
        return answer

    async def read(self, fn: Callable[[Connection], T]) -> T:
        return await self._rig.ports.db.read(fn)

    async def close(self) -> None:
        await self._rig.ports.db.close()


async def test_a_process_that_stood_still_within_a_round_was_not_listening(harness: ControlHarness) -> None:
    """Or its clock was set forward meanwhile."""
    job, _ = await harness.running()
    still = StalledDb(harness)
    reconciler = Reconciler(
        replace(harness.ports, db=still), harness.writer, harness.contacts, harness.scheduler, harness.offers
    )
    for _ in range(9):
        await reconciler.round()
        harness.clock.move(NOTICE_AFTER / 9)
    still.stands_still = True
    await reconciler.round()
    assert not still.stands_still, "the job was due, and claimed"
    assert (await harness.world(job)).job.conditions == frozenset()


async def test_a_new_process_counts_silence_anew(harness: ControlHarness) -> None:
    job, _ = await harness.running()
    harness.clock.move(3600)
    await (await other_worker(harness, "w2")).listen(NOTICE_AFTER - 1)
    assert (await harness.world(job)).job.conditions == frozenset()


async def test_a_job_shown_as_unreachable_stays_so_over_a_gap(harness: ControlHarness) -> None:
    job, _ = await harness.running()
    await harness.listen(NOTICE_AFTER)
    harness.clock.move(3600)
    await harness.listen(10)
    assert (await harness.world(job)).job.conditions == {"unreachable"}
    assert "reachable" not in await events(harness, job)


async def test_a_job_that_cannot_be_looked_at_is_put_off_and_holds_up_no_other(harness: ControlHarness) -> None:
    broken, _ = await harness.running()
    job, _ = await harness.running()
    await harness.listen(NOTICE_AFTER - 1)
    rows = {r["id"]: r["spec"] for r in await harness.rows(t.jobs)}
    await harness.sql(set_job(broken, spec="{", due_at=harness.clock.now()))
    harness.clock.move(1)
    await harness.reconciler.round()
    assert (await harness.world(job)).job.conditions == {"unreachable"}
    due = next(r["due_at"] for r in await harness.rows(t.jobs) if r["id"] == broken)
    assert due == harness.clock.now() + POSTPONE_SECONDS
    await harness.sql(set_job(broken, spec=rows[broken]))
    await harness.listen(POSTPONE_SECONDS)
    assert (await harness.world(broken)).job.conditions == {"unreachable"}


def set_job(job: str, **values: object) -> Callable[[Connection], int]:
    return lambda conn: conn.execute(t.jobs.update().where(t.jobs.c.id == job).values(values)).rowcount


async def test_contacts_that_could_not_be_stored_are_stored_later(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await harness.reconciler.round()
    harness.clock.move(1)
    harness.contacts.record_attempt(runner.attempt, harness.clock.now())
    full = FullDb(harness.ports.db)
    reconciler = Reconciler(
        replace(harness.ports, db=full), harness.writer, harness.contacts, harness.scheduler, harness.offers
    )
    with pytest.raises(DiskFull):
        await reconciler.round()
    assert harness.contacts.has_pending
    full.full = False
    await reconciler.round()
    assert (await harness.attempt(job)).last_seen == harness.clock.now()


class FullDb:
    """A database whose disk is full until somebody makes room."""

    def __init__(self, db: Db) -> None:
        self._db = db
        self.full = True

    async def write(self, fn: Callable[[Connection], T]) -> T:
        if self.full:
            raise DiskFull("No room.")
        return await self._db.write(fn)

    async def read(self, fn: Callable[[Connection], T]) -> T:
        return await self._db.read(fn)

    async def close(self) -> None:
        await self._db.close()


async def test_contacts_are_stored_before_silence_is_judged(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    harness.clock.move(NOTICE_AFTER)
    harness.contacts.record_attempt(runner.attempt, harness.clock.now())
    await harness.reconciler.round()
    assert (await harness.world(job)).job.conditions == frozenset()
    assert (await harness.attempt(job)).last_seen == harness.clock.now()
