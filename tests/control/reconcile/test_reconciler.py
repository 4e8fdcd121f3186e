from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from sqlalchemy import Connection
from tests.control.world import Rig, other_worker

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
    await rig.listen(5 * NOTICE_AFTER)
    world = await rig.world(job)
    assert world.job.conditions == {"unreachable"}
    assert world.job.state is JobState.RUNNING
    assert (await events(rig, job)).count("unreachable") == 1
    await runner.say(MessageKind.NOTE, text="back")
    assert (await rig.world(job)).job.conditions == frozenset()
    assert (await events(rig, job))[-2:] == ["reachable", "note"]


async def test_a_job_is_looked_at_when_it_is_due_and_not_before(rig: Rig) -> None:
    job, _ = await rig.running()
    await rig.listen(NOTICE_AFTER - 1)
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
    job, _ = await rig.running(cpus=4, retries={"infrastructure": 0})
    waiting = await rig.submit(cpus=4)
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
    await rig.listen(NOTICE_AFTER - 1)
    rig.clock.move(1)
    held = {"claimed_by": "w2", "claimed_until": rig.clock.now() + CLAIM_SECONDS}
    await rig.sql(lambda conn: conn.execute(t.jobs.update().values(held)).rowcount)
    await rig.reconciler.round()
    assert (await rig.world(job)).job.conditions == frozenset()
    rig.clock.move(CLAIM_SECONDS)
    await rig.reconciler.round()
    assert (await rig.world(job)).job.conditions == {"unreachable"}
    (row,) = await rig.rows(t.jobs)
    assert row["claimed_by"] is None


async def test_a_machine_lost_before_the_job_began_charges_nothing(rig: Rig) -> None:
    job = await rig.submit(retries={"infrastructure": 0})
    await rig.host_up()
    rig.backend.show((await rig.machine()).id, Seen.GONE)
    for _ in range(2):
        await rig.poller.poll()
    rig.clock.move(SETTLE_WINDOW)
    await rig.reconciler.round()
    world = await rig.world(job)
    assert (world.job.state, world.attempts[0].reason) == (JobState.QUEUED, Reason.NOT_BEGUN)
    assert world.job.used == {Retry.UNBEGUN: 1}


@pytest.mark.parametrize("gap", [GAP_SECONDS + 1, 3600.0])
async def test_while_nobody_listened_nobody_was_silent(rig: Rig, gap: float) -> None:
    job, _ = await rig.running()
    await rig.listen(5)
    rig.clock.move(gap)
    await rig.listen(NOTICE_AFTER - 1)
    assert (await rig.world(job)).job.conditions == frozenset()
    await rig.listen(CHECK_AGAIN)
    assert (await rig.world(job)).job.conditions == {"unreachable"}


class StillDb:
    """A database whose next write takes its process an hour, once somebody says so."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
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


async def test_a_process_that_stood_still_within_a_round_was_not_listening(rig: Rig) -> None:
    """Or its clock was set forward meanwhile."""
    job, _ = await rig.running()
    still = StillDb(rig)
    reconciler = Reconciler(replace(rig.ports, db=still), rig.writer, rig.scheduler, rig.contacts)
    for _ in range(9):
        await reconciler.round()
        rig.clock.move(NOTICE_AFTER / 9)
    still.stands_still = True
    await reconciler.round()
    assert not still.stands_still, "the job was due, and claimed"
    assert (await rig.world(job)).job.conditions == frozenset()


async def test_a_new_process_counts_silence_anew(rig: Rig) -> None:
    job, _ = await rig.running()
    rig.clock.move(3600)
    await (await other_worker(rig, "w2")).listen(NOTICE_AFTER - 1)
    assert (await rig.world(job)).job.conditions == frozenset()


async def test_a_job_shown_as_unreachable_stays_so_over_a_gap(rig: Rig) -> None:
    job, _ = await rig.running()
    await rig.listen(NOTICE_AFTER)
    rig.clock.move(3600)
    await rig.listen(10)
    assert (await rig.world(job)).job.conditions == {"unreachable"}
    assert "reachable" not in await events(rig, job)


async def test_a_job_that_cannot_be_looked_at_is_put_off_and_holds_up_no_other(rig: Rig) -> None:
    broken, _ = await rig.running()
    job, _ = await rig.running()
    await rig.listen(NOTICE_AFTER - 1)
    rows = {r["id"]: r["spec"] for r in await rig.rows(t.jobs)}
    await rig.sql(set_job(broken, spec="{", due_at=rig.clock.now()))
    rig.clock.move(1)
    await rig.reconciler.round()
    assert (await rig.world(job)).job.conditions == {"unreachable"}
    due = next(r["due_at"] for r in await rig.rows(t.jobs) if r["id"] == broken)
    assert due == rig.clock.now() + POSTPONE_SECONDS
    await rig.sql(set_job(broken, spec=rows[broken]))
    await rig.listen(POSTPONE_SECONDS)
    assert (await rig.world(broken)).job.conditions == {"unreachable"}


def set_job(job: str, **values: object) -> Callable[[Connection], int]:
    return lambda conn: conn.execute(t.jobs.update().where(t.jobs.c.id == job).values(values)).rowcount


async def test_contacts_that_could_not_be_stored_are_stored_later(rig: Rig) -> None:
    job, runner = await rig.running()
    await rig.reconciler.round()
    rig.clock.move(1)
    rig.contacts.record_attempt(runner.attempt, rig.clock.now())
    full = FullDb(rig.ports.db)
    reconciler = Reconciler(replace(rig.ports, db=full), rig.writer, rig.scheduler, rig.contacts)
    with pytest.raises(DiskFull):
        await reconciler.round()
    assert rig.contacts.has_pending
    full.full = False
    await reconciler.round()
    assert (await rig.attempt(job)).last_seen == rig.clock.now()


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


async def test_contacts_are_stored_before_silence_is_judged(rig: Rig) -> None:
    job, runner = await rig.running()
    rig.clock.move(NOTICE_AFTER)
    rig.contacts.record_attempt(runner.attempt, rig.clock.now())
    await rig.reconciler.round()
    assert (await rig.world(job)).job.conditions == frozenset()
    assert (await rig.attempt(job)).last_seen == rig.clock.now()
