"""Another deployment's backup is taken for its history: what it says is out there is not ours to touch."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.control.world import Rig, add_row

from crucible.control.db import schema as t
from crucible.control.runtime.deployment_check import COMPUTER
from crucible.control.upkeep import restore_hold
from crucible.control.upkeep.restore import disown
from crucible.core.lifecycle import AttemptState, JobState, MachineState, Reason
from crucible.core.lifecycle import facts as f


async def take_over(rig: Rig) -> None:
    """The database as it is now comes out of a backup that another deployment made a minute ago.

    Places show only what carries our tag.
    """
    rig.backend.made.clear()
    backup_at = rig.clock.now()
    rig.clock.move(60)

    def make_ours(conn: Any) -> None:
        disown(conn, "dep-other", backup_at, rig.clock.now())
        restore_hold.mark_restored(conn, rig.clock.now(), backup_at)

    await rig.sql(make_ours)
    await rig.duties.renew(rig.ports.db, rig.clock)


async def everything_goes_round(rig: Rig) -> None:
    for _ in range(3):
        await rig.performer.perform_due()
        await rig.poller.poll()
        await rig.janitor.tidy()
        await rig.janitor.release_stuck()
        await rig.ledger.round()
        await rig.reconciler.round()
        await rig.place()
        rig.clock.move(60)


async def confirm(rig: Rig) -> None:
    await rig.sql(lambda conn: restore_hold.confirm(conn, rig.clock.now()))


@pytest.mark.parametrize("confirmed", [False, True])
async def test_its_machines_are_neither_ended_nor_asked_for_nor_launched(rig: Rig, confirmed: bool) -> None:
    await rig.running()
    ending = (await rig.machine()).id
    await rig.change_machine(ending, f.Unwanted("enough"))
    await rig.submit()
    launches, polls = len(rig.backend.launches), rig.backend.polls
    await take_over(rig)
    if confirmed:
        await confirm(rig)
    await everything_goes_round(rig)
    assert (rig.backend.terminated, len(rig.backend.launches), rig.backend.polls) == ([], launches, polls)
    assert all(row["done"] for row in await rig.rows(t.effects))
    machine = await rig.machine(ending)
    assert machine.state is MachineState.GONE
    assert "dep-other" in machine.detail


async def test_unfinished_jobs_are_over_and_say_why(rig: Rig) -> None:
    running, _ = await rig.running(cpus=4)
    waiting = await rig.submit(cpus=4)
    assert (await rig.world(waiting)).job.state is JobState.QUEUED
    await take_over(rig)
    await confirm(rig)
    await everything_goes_round(rig)
    worlds = {job: await rig.world(job) for job in (running, waiting)}
    assert worlds[running].job.state is JobState.FAILED
    assert worlds[running].job.reason is Reason.MACHINE_LOST
    assert "dep-other" in worlds[running].job.detail
    (attempt,) = worlds[running].attempts
    assert (attempt.state, attempt.slots[0].ended) == (AttemptState.ENDED, True)
    assert worlds[waiting].job.state is JobState.CANCELLED
    told = [row["type"] for row in await rig.rows(t.events) if row["job"] == running]
    assert told[-2:] == ["attempt_ended", "failed"]
    assert all(r["state"] in ("failed", "cancelled", "completed") for r in await rig.rows(t.jobs))


async def test_what_had_ended_stays_as_it_was(rig: Rig) -> None:
    job, runner = await rig.running()
    await runner.end()
    before = await rig.world(job)
    await take_over(rig)
    assert (await rig.world(job)).job == before.job


async def test_bills_end_with_the_backup(rig: Rig) -> None:
    await rig.running()
    backup_at = rig.clock.now()
    await take_over(rig)
    assert {row["ends_at"] for row in await rig.rows(t.price_segments)} == {backup_at}
    assert all(row["metered"] for row in await rig.rows(t.machines))


async def test_the_computer_of_its_places_is_not_ours(rig: Rig) -> None:
    await rig.sql(add_row(t.meta, key=COMPUTER, value=json.dumps({"mark": "m9"})))
    await take_over(rig)
    assert COMPUTER not in {row["key"] for row in await rig.rows(t.meta)}


async def test_new_jobs_are_placed_once_our_places_are_clear(rig: Rig) -> None:
    await rig.running()
    await take_over(rig)
    await everything_goes_round(rig)
    job = await rig.submit()
    assert (await rig.world(job)).job.state is not JobState.QUEUED
