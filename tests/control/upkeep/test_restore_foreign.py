"""Another deployment's backup is taken for its history: what it says is out there is not ours to touch."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.control.harness import ControlHarness, add_row

from crucible.control.db import schema as t
from crucible.control.runtime.deployment_check import COMPUTER
from crucible.control.upkeep import restore_hold
from crucible.control.upkeep.restore import disown
from crucible.core.lifecycle import AttemptState, JobState, MachineState, Reason
from crucible.core.lifecycle import facts as f


async def take_over(harness: ControlHarness) -> None:
    """The database as it is now comes out of a backup that another deployment made a minute ago.

    Places show only what carries our tag.
    """
    harness.backend.made.clear()
    backup_at = harness.clock.now()
    harness.clock.move(60)

    def make_ours(conn: Any) -> None:
        disown(conn, "dep-other", backup_at, harness.clock.now())
        restore_hold.mark_restored(conn, harness.clock.now(), backup_at)

    await harness.sql(make_ours)
    await harness.duties.renew(harness.ports.db, harness.clock)


async def everything_goes_round(harness: ControlHarness) -> None:
    for _ in range(3):
        await harness.performer.perform_due()
        await harness.poller.poll()
        await harness.janitor.tidy()
        await harness.janitor.release_stuck()
        await harness.ledger.round()
        await harness.reconciler.round()
        await harness.place()
        harness.clock.move(60)


async def confirm(harness: ControlHarness) -> None:
    await harness.sql(lambda conn: restore_hold.confirm(conn, harness.clock.now()))


@pytest.mark.parametrize("confirmed", [False, True])
async def test_its_machines_are_neither_ended_nor_asked_for_nor_launched(
    harness: ControlHarness, confirmed: bool
) -> None:
    await harness.running()
    ending = (await harness.machine()).id
    await harness.change_machine(ending, f.Unwanted("enough"))
    await harness.submit()
    launches, polls = len(harness.backend.launches), harness.backend.polls
    await take_over(harness)
    if confirmed:
        await confirm(harness)
    await everything_goes_round(harness)
    assert (harness.backend.terminated, len(harness.backend.launches), harness.backend.polls) == ([], launches, polls)
    assert all(row["done"] for row in await harness.rows(t.effects))
    machine = await harness.machine(ending)
    assert machine.state is MachineState.GONE
    assert "dep-other" in machine.detail


async def test_unfinished_jobs_are_over_and_say_why(harness: ControlHarness) -> None:
    running, _ = await harness.running(cpus=4)
    waiting = await harness.submit(cpus=4)
    assert (await harness.world(waiting)).job.state is JobState.QUEUED
    await take_over(harness)
    await confirm(harness)
    await everything_goes_round(harness)
    worlds = {job: await harness.world(job) for job in (running, waiting)}
    assert worlds[running].job.state is JobState.FAILED
    assert worlds[running].job.reason is Reason.MACHINE_LOST
    assert "dep-other" in worlds[running].job.detail
    (attempt,) = worlds[running].attempts
    assert (attempt.state, attempt.slots[0].ended) == (AttemptState.ENDED, True)
    assert worlds[waiting].job.state is JobState.CANCELLED
    told = [row["type"] for row in await harness.rows(t.events) if row["job"] == running]
    assert told[-2:] == ["attempt_ended", "failed"]
    assert all(r["state"] in ("failed", "cancelled", "completed") for r in await harness.rows(t.jobs))


async def test_what_had_ended_stays_as_it_was(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await runner.end()
    before = await harness.world(job)
    await take_over(harness)
    assert (await harness.world(job)).job == before.job


async def test_bills_end_with_the_backup(harness: ControlHarness) -> None:
    await harness.running()
    backup_at = harness.clock.now()
    await take_over(harness)
    assert {row["ends_at"] for row in await harness.rows(t.price_segments)} == {backup_at}
    assert all(row["metered"] for row in await harness.rows(t.machines))


async def test_the_computer_of_its_places_is_not_ours(harness: ControlHarness) -> None:
    await harness.sql(add_row(t.meta, key=COMPUTER, value=json.dumps({"mark": "m9"})))
    await take_over(harness)
    assert COMPUTER not in {row["key"] for row in await harness.rows(t.meta)}


async def test_new_jobs_are_placed_once_our_places_are_clear(harness: ControlHarness) -> None:
    await harness.running()
    await take_over(harness)
    await everything_goes_round(harness)
    job = await harness.submit()
    assert (await harness.world(job)).job.state is not JobState.QUEUED
