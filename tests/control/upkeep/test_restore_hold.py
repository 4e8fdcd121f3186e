"""After a restore nothing is ended or launched on the word of the old database, until a person confirms it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import update
from tests.control.fakes import FakeBackend
from tests.control.world import FakeRunner, Rig, add_row, make_machine, new_id

from crucible.backends.base import Seen
from crucible.control.agents.agents import MachineUnwanted
from crucible.control.agents.ingest import Gap
from crucible.control.agents.slots import AttemptGone
from crucible.control.db import schema as t
from crucible.control.machines.janitor import release_idle_pools
from crucible.control.reconcile import codec
from crucible.control.reconcile.unit_of_work import UnitOfWork
from crucible.control.upkeep import restore_hold
from crucible.control.upkeep.restore_hold import RestoreUnconfirmed
from crucible.core.ids import Prefix
from crucible.core.lifecycle import JobState, MachineState
from crucible.core.lifecycle import facts as f
from crucible.wire.documents.messages import MessageKind

STRANGER = new_id(Prefix.MACHINE, 99)
UNKNOWN = new_id(Prefix.ATTEMPT, 99)


async def restore(rig: Rig) -> None:
    """The database as it is now comes out of a backup, a minute later."""
    backup_at = rig.clock.now()
    rig.clock.move(60)
    await rig.sql(lambda conn: restore_hold.mark_restored(conn, rig.clock.now(), backup_at))
    await rig.duties.renew(rig.ports.db, rig.clock)


async def confirm(rig: Rig) -> restore_hold.ConfirmResult:
    return await rig.sql(lambda conn: restore_hold.confirm(conn, rig.clock.now()))


async def perform(rig: Rig) -> None:
    """Time enough for anything that is put off to come due again, several times."""
    for _ in range(5):
        await rig.performer.perform_due()
        rig.clock.move(restore_hold.CHECK_AGAIN + 1)


async def unwanted_machine(rig: Rig) -> str:
    """A machine that the database wants gone, and whose end has not been asked for yet."""
    await rig.running()
    machine = (await rig.machine()).id
    await rig.change_machine(machine, f.Unwanted("enough"))
    return machine


async def test_a_machine_that_the_restored_database_wants_gone_lives_until_confirmed(rig: Rig) -> None:
    machine = await unwanted_machine(rig)
    await restore(rig)
    await perform(rig)
    assert rig.backend.terminated == []
    effect = (await rig.rows(t.effects))[-1]
    assert (effect["done"], effect["tries"], effect["error"]) == (False, 0, restore_hold.WHY)

    done = await confirm(rig)
    assert done.effects == 1
    await perform(rig)
    assert [ref.machine for ref in rig.backend.terminated] == [machine]
    assert (await rig.machine(machine)).state is MachineState.GONE


async def test_the_wait_for_a_confirmation_is_not_a_busy_one(rig: Rig) -> None:
    await unwanted_machine(rig)
    await restore(rig)
    await rig.performer.perform_due()
    due = await rig.performer.next_due()
    assert due is not None
    assert due > rig.clock.now()


async def test_confirming_what_was_not_restored_does_nothing(rig: Rig) -> None:
    assert await confirm(rig) == restore_hold.ConfirmResult(None, 0)
    assert await rig.read(restore_hold.status) is None
    await restore(rig)
    told = await rig.read(restore_hold.status)
    assert told is not None
    assert (told.restored_at, told.backup_at) == (rig.clock.now(), rig.clock.now() - 60)
    assert (await confirm(rig)).restored_at == rig.clock.now()
    assert await confirm(rig) == restore_hold.ConfirmResult(None, 0)


async def test_the_janitor_ends_nothing_and_reports_all_the_same(rig: Rig) -> None:
    await rig.running()
    machine = (await rig.machine()).id
    await rig.change_machine(machine, f.SeenGone(), f.SeenGone())
    stranger = rig.backend.add(STRANGER)
    await restore(rig)
    found = await rig.janitor.tidy()
    assert found.unknown == (stranger,)
    assert [ref.machine for ref in found.leftovers] == [machine]
    assert rig.backend.terminated == []
    await confirm(rig)
    await rig.janitor.tidy()
    assert [ref.machine for ref in rig.backend.terminated] == [machine]
    assert rig.backend.made[STRANGER].seen is Seen.UP, "a stranger is left alone, confirmed or not"


async def test_pools_release_only_what_was_made_since(rig: Rig) -> None:
    _, runner = await rig.running()
    await runner.end()
    await restore(rig)
    assert await rig.writer.write(release_idle_pools) == 0
    await confirm(rig)
    assert await rig.writer.write(release_idle_pools) == 1


async def test_a_launch_that_was_open_is_neither_sent_nor_believed_unsent(rig: Rig) -> None:
    await rig.submit()
    await restore(rig)
    await perform(rig)
    assert rig.backend.launches == []
    machine = (await rig.machine()).id
    rig.backend.add(machine)  # launched after the backup was made
    await confirm(rig)
    await perform(rig)
    assert rig.backend.launches == [], "it was looked for, and found"
    assert (await rig.machine(machine)).native_id == f"i-{machine}"


async def queued_job(rig: Rig) -> str:
    """A job in a database without any live machine, as a backup of a quiet deployment has it."""
    job = await rig.submit()
    machine = (await rig.machine()).id
    await rig.performer.perform_due()
    await rig.change_machine(machine, f.SeenGone(), f.SeenGone())
    state = {"state": JobState.QUEUED.value, "not_before": 0.0}
    await rig.sql(lambda conn: conn.execute(update(t.jobs).values(state)).rowcount)
    ended = update(t.attempts).values(state="ended", ended_at=1.0)
    await rig.sql(lambda conn: conn.execute(ended).rowcount)
    await rig.sql(lambda conn: conn.execute(update(t.slots).values(ended=True)).rowcount)
    del rig.backend.made[machine]
    return job


async def shown_clear(rig: Rig) -> None:
    """Two looks at every place, far enough apart."""
    await rig.janitor.tidy()
    rig.clock.move(restore_hold.SCAN_INTERVAL)
    await rig.janitor.tidy()


async def state_of(rig: Rig, job: str) -> JobState:
    return (await rig.world(job)).job.state


async def test_a_job_is_placed_once_every_place_has_shown_that_all_it_holds_is_known(rig: Rig) -> None:
    job = await queued_job(rig)
    await restore(rig)
    await rig.place()
    world = await rig.world(job)
    assert world.job.state is JobState.QUEUED
    assert world.job.waiting == f"{restore_hold.WHY} {restore_hold.FIX}"

    rig.backend.add(STRANGER)
    await rig.janitor.tidy()
    await rig.place()
    assert await state_of(rig, job) is JobState.QUEUED, "the stranger may be running this very job"

    del rig.backend.made[STRANGER]
    await shown_clear(rig)
    await rig.place()
    assert await state_of(rig, job) is not JobState.QUEUED


@pytest.mark.parametrize("settle_window", [0.0, 40.0])
async def test_one_clean_list_is_not_enough_nor_are_two_within_the_places_lag(rig: Rig, settle_window: float) -> None:
    job, apart = await queued_job(rig), max(settle_window, restore_hold.SCAN_INTERVAL)
    rig.backend.capabilities = replace(rig.backend.capabilities, settle_window=settle_window)
    await restore(rig)
    for wait in (0.0, 0.1, apart - 0.2):
        rig.clock.move(wait)
        await rig.janitor.tidy()
        await rig.place()
        assert await state_of(rig, job) is JobState.QUEUED, "what was launched last may not be listed yet"
    rig.clock.move(0.2)
    await rig.janitor.tidy()
    await rig.place()
    assert await state_of(rig, job) is not JobState.QUEUED


async def test_a_stranger_between_two_clean_lists_makes_them_count_anew(rig: Rig) -> None:
    job = await queued_job(rig)
    await restore(rig)
    await rig.janitor.tidy()
    rig.backend.add(STRANGER)
    rig.clock.move(restore_hold.SCAN_INTERVAL)
    await rig.janitor.tidy()
    del rig.backend.made[STRANGER]
    await rig.janitor.tidy()
    await rig.place()
    assert await state_of(rig, job) is JobState.QUEUED
    rig.clock.move(restore_hold.SCAN_INTERVAL)
    await rig.janitor.tidy()
    await rig.place()
    assert await state_of(rig, job) is not JobState.QUEUED


async def test_all_that_it_knows_is_from_before_whatever_the_clock_of_the_restore_says(rig: Rig) -> None:
    machine = await unwanted_machine(rig)
    behind = rig.clock.now() - 3600
    await rig.sql(lambda conn: restore_hold.mark_restored(conn, behind, behind))
    await perform(rig)
    assert rig.backend.terminated == []
    await confirm(rig)
    await perform(rig)
    assert [ref.machine for ref in rig.backend.terminated] == [machine]


async def test_a_place_that_does_not_answer_holds_everything(two_backends: Rig) -> None:
    rig = two_backends
    job = await queued_job(rig)
    await restore(rig)
    other: FakeBackend = rig.backends["ssh"]
    other.down = RestoreUnconfirmed("No answer.")
    await rig.janitor.tidy()
    await rig.place()
    assert await state_of(rig, job) is JobState.QUEUED
    await confirm(rig)
    await rig.place()
    assert await state_of(rig, job) is not JobState.QUEUED


async def test_nothing_is_placed_while_a_machine_from_before_may_live(rig: Rig) -> None:
    job = await queued_job(rig)
    before = make_machine(new_id(Prefix.MACHINE, 7), state=MachineState.UP, owner="attempt:x")
    await rig.sql(add_row(t.machines, **codec.machine_row(before)))
    await restore(rig)
    await rig.janitor.tidy()
    await rig.place()
    assert await state_of(rig, job) is JobState.QUEUED


async def test_machines_made_since_are_known_and_end_as_always(rig: Rig) -> None:
    await queued_job(rig)
    await restore(rig)
    rig.clock.move(1)
    await shown_clear(rig)
    await rig.place()
    machine = await rig.host_up()
    await rig.change_machine(machine, f.Unwanted("enough"))
    await perform(rig)
    assert [ref.machine for ref in rig.backend.terminated] == [machine]


async def test_hosts_from_before_get_no_document_and_unknown_ones_are_not_sent_away(rig: Rig) -> None:
    await rig.running()
    machine = (await rig.machine()).id
    await restore(rig)
    for name in (machine, STRANGER):
        with pytest.raises(RestoreUnconfirmed):
            await rig.agents.desired(name, 0, 0)
    await confirm(rig)
    assert await rig.agents.desired(machine, 0, 0) is not None
    with pytest.raises(MachineUnwanted):
        await rig.agents.desired(STRANGER, 0, 0)


async def test_a_runner_that_the_backup_did_not_know_is_not_told_to_end(rig: Rig) -> None:
    await restore(rig)
    runner = FakeRunner(rig.agents, UNKNOWN)
    with pytest.raises(RestoreUnconfirmed):
        await runner.say(MessageKind.STARTED, pid=1)
    with pytest.raises(RestoreUnconfirmed):
        await rig.agents.put_log(UNKNOWN, 0, 0, 0, 0, "0" * 64, b"")
    await confirm(rig)
    with pytest.raises(AttemptGone):
        await runner.say(MessageKind.STARTED, pid=1)


async def test_messages_that_only_the_newer_database_had_are_passed_over_once_nothing_earlier_is_left(
    rig: Rig,
) -> None:
    """The runner was acknowledged up to 10; the backup knows 1; its disk has 6 and later."""
    job, runner = await rig.running()
    runner.n = 10
    with pytest.raises(Gap):
        await runner.say(MessageKind.NOTE, text="before the restore a gap is a gap")
    await restore(rig)
    for n in (10, 5):
        runner.n = n
        assert await runner.say(MessageKind.NOTE, text="later") == 1, "it is asked for what comes after 1"
    runner.n = 5
    assert await runner.end() == 7
    assert await state_of(rig, job) is JobState.COMPLETED


async def test_the_gap_of_one_runner_does_not_forgive_another(rig: Rig) -> None:
    await restore(rig)
    rig.clock.move(1)
    await shown_clear(rig)
    _, runner = await rig.running()
    runner.n = 10
    with pytest.raises(Gap):
        await runner.say(MessageKind.NOTE, text="lost")


async def test_claims_and_duties_of_the_time_before_are_void(rig: Rig) -> None:
    await rig.submit()
    hold = {"claimed_by": "somebody", "claimed_until": rig.clock.now() + 1e6}
    await rig.sql(lambda conn: conn.execute(update(t.effects).values(hold)).rowcount)
    await rig.sql(lambda conn: restore_hold.mark_restored(conn, rig.clock.now(), 0.0))
    assert {row["claimed_by"] for row in await rig.rows(t.effects)} == {None}
    assert await rig.rows(t.roles) == []


async def test_a_unit_sees_the_hold_in_its_own_transaction(rig: Rig) -> None:
    def both(unit: UnitOfWork) -> tuple[bool, bool]:
        restore_hold.mark_restored(unit.conn, unit.now, 0.0)
        held = restore_hold.is_held(unit.conn)
        restore_hold.confirm(unit.conn, unit.now)
        return held, restore_hold.is_held(unit.conn)

    assert await rig.writer.write(both) == (True, False)
