"""After a restore nothing is ended or launched on the word of the old database, until a person confirms it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection, Table, delete, insert, update
from tests.control.fakes import FakeBackend
from tests.control.harness import ControlHarness, FakeRunner, add_row, make_machine, new_id, service, sha

from crucible.backends.base import Seen
from crucible.control.agents.agents import MachineUnwanted
from crucible.control.agents.ingest import Gap
from crucible.control.agents.slots import AttemptGone
from crucible.control.db import schema as t
from crucible.control.machines.janitor import release_idle_machines
from crucible.control.reconcile import codec
from crucible.control.reconcile.unit_of_work import UnitOfWork
from crucible.control.telemetry.grep import Pattern
from crucible.control.telemetry.log_search import Query
from crucible.control.upkeep import restore_hold
from crucible.control.upkeep.restore_hold import RestoreUnconfirmed
from crucible.core.ids import Prefix
from crucible.core.lifecycle import JobState, MachineState
from crucible.core.lifecycle import facts as f
from crucible.core.people.identity import OWNER
from crucible.storage.layout import artifact_key, attempt_prefix, log_segment_key
from crucible.wire.documents.messages import MessageKind

STRANGER = new_id(Prefix.MACHINE, 99)
UNKNOWN = new_id(Prefix.ATTEMPT, 99)


async def restore(harness: ControlHarness) -> None:
    """The database as it is now comes out of a backup, a minute later."""
    backup_at = harness.clock.now()
    harness.clock.move(60)
    await harness.sql(lambda conn: restore_hold.mark_restored(conn, harness.clock.now(), backup_at))
    await harness.duties.renew(harness.ports.db, harness.clock)


async def confirm(harness: ControlHarness) -> restore_hold.ConfirmResult:
    return await harness.sql(lambda conn: restore_hold.confirm(conn, harness.clock.now()))


async def perform(harness: ControlHarness) -> None:
    """Time enough for anything that is put off to come due again, several times."""
    for _ in range(5):
        await harness.performer.perform_due()
        harness.clock.move(restore_hold.CHECK_AGAIN + 1)


async def unwanted_machine(harness: ControlHarness) -> str:
    """A machine that the database wants gone, and whose end has not been asked for yet."""
    await harness.running()
    machine = (await harness.machine()).id
    await harness.change_machine(machine, f.Unwanted("enough"))
    return machine


async def test_a_machine_that_the_restored_database_wants_gone_lives_until_confirmed(harness: ControlHarness) -> None:
    machine = await unwanted_machine(harness)
    await restore(harness)
    await perform(harness)
    assert harness.backend.terminated == []
    effect = (await harness.rows(t.effects))[-1]
    assert (effect["done"], effect["tries"], effect["error"]) == (False, 0, restore_hold.WHY)

    done = await confirm(harness)
    assert done.effects == 1
    await perform(harness)
    assert [ref.machine for ref in harness.backend.terminated] == [machine]
    assert (await harness.machine(machine)).state is MachineState.GONE


async def test_the_wait_for_a_confirmation_is_not_a_busy_one(harness: ControlHarness) -> None:
    await unwanted_machine(harness)
    await restore(harness)
    await harness.performer.perform_due()
    due = await harness.performer.next_due()
    assert due is not None
    assert due > harness.clock.now()


async def test_confirming_what_was_not_restored_does_nothing(harness: ControlHarness) -> None:
    assert await confirm(harness) == restore_hold.ConfirmResult(None, 0)
    assert await harness.read(restore_hold.status) is None
    await restore(harness)
    told = await harness.read(restore_hold.status)
    assert told is not None
    assert (told.restored_at, told.backup_at) == (harness.clock.now(), harness.clock.now() - 60)
    assert (await confirm(harness)).restored_at == harness.clock.now()
    assert await confirm(harness) == restore_hold.ConfirmResult(None, 0)


async def test_the_janitor_ends_nothing_and_reports_all_the_same(harness: ControlHarness) -> None:
    await harness.running()
    machine = (await harness.machine()).id
    await harness.change_machine(machine, f.SeenGone(), f.SeenGone())
    stranger = harness.backend.add(STRANGER)
    await restore(harness)
    found = await harness.janitor.tidy()
    assert found.unknown == (stranger,)
    assert [ref.machine for ref in found.leftovers] == [machine]
    assert harness.backend.terminated == []
    await confirm(harness)
    await harness.janitor.tidy()
    assert [ref.machine for ref in harness.backend.terminated] == [machine]
    assert harness.backend.made[STRANGER].seen is Seen.UP, "a stranger is left alone, confirmed or not"


async def test_pools_release_only_what_was_made_since(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    await runner.end()
    await restore(harness)
    assert await harness.writer.write(release_idle_machines) == 0
    await confirm(harness)
    assert await harness.writer.write(release_idle_machines) == 1


async def test_a_launch_that_was_open_is_neither_sent_nor_believed_unsent(harness: ControlHarness) -> None:
    await harness.submit()
    await restore(harness)
    await perform(harness)
    assert harness.backend.launches == []
    machine = (await harness.machine()).id
    harness.backend.add(machine)  # launched after the backup was made
    await confirm(harness)
    await perform(harness)
    assert harness.backend.launches == [], "it was looked for, and found"
    assert (await harness.machine(machine)).native_id == f"i-{machine}"


async def queued_job(harness: ControlHarness) -> str:
    """A job in a database without any live machine, as a backup of a quiet deployment has it."""
    job = await harness.submit()
    machine = (await harness.machine()).id
    await harness.performer.perform_due()
    await harness.change_machine(machine, f.SeenGone(), f.SeenGone())
    state = {"state": JobState.QUEUED.value, "not_before": 0.0}
    await harness.sql(lambda conn: conn.execute(update(t.jobs).values(state)).rowcount)
    ended = update(t.attempts).values(state="ended", ended_at=1.0)
    await harness.sql(lambda conn: conn.execute(ended).rowcount)
    await harness.sql(lambda conn: conn.execute(update(t.slots).values(ended=True)).rowcount)
    del harness.backend.made[machine]
    return job


async def shown_clear(harness: ControlHarness) -> None:
    """Two looks at every place, far enough apart."""
    await harness.janitor.tidy()
    harness.clock.move(restore_hold.SCAN_INTERVAL)
    await harness.janitor.tidy()


async def state_of(harness: ControlHarness, job: str) -> JobState:
    return (await harness.world(job)).job.state


async def test_a_job_is_placed_once_every_place_has_shown_that_all_it_holds_is_known(harness: ControlHarness) -> None:
    job = await queued_job(harness)
    await restore(harness)
    await harness.place()
    world = await harness.world(job)
    assert world.job.state is JobState.QUEUED
    assert world.job.waiting == f"{restore_hold.WHY} {restore_hold.FIX}"

    harness.backend.add(STRANGER)
    await harness.janitor.tidy()
    await harness.place()
    assert await state_of(harness, job) is JobState.QUEUED, "the stranger may be running this very job"

    del harness.backend.made[STRANGER]
    await shown_clear(harness)
    await harness.place()
    assert await state_of(harness, job) is not JobState.QUEUED


@pytest.mark.parametrize("settle_window", [0.0, 40.0])
async def test_one_clean_list_is_not_enough_nor_are_two_within_the_places_lag(
    harness: ControlHarness, settle_window: float
) -> None:
    job, apart = await queued_job(harness), max(settle_window, restore_hold.SCAN_INTERVAL)
    harness.backend.capabilities = replace(harness.backend.capabilities, settle_window=settle_window)
    await restore(harness)
    for wait in (0.0, 0.1, apart - 0.2):
        harness.clock.move(wait)
        await harness.janitor.tidy()
        await harness.place()
        assert await state_of(harness, job) is JobState.QUEUED, "what was launched last may not be listed yet"
    harness.clock.move(0.2)
    await harness.janitor.tidy()
    await harness.place()
    assert await state_of(harness, job) is not JobState.QUEUED


async def test_a_stranger_between_two_clean_lists_makes_them_count_anew(harness: ControlHarness) -> None:
    job = await queued_job(harness)
    await restore(harness)
    await harness.janitor.tidy()
    harness.backend.add(STRANGER)
    harness.clock.move(restore_hold.SCAN_INTERVAL)
    await harness.janitor.tidy()
    del harness.backend.made[STRANGER]
    await harness.janitor.tidy()
    await harness.place()
    assert await state_of(harness, job) is JobState.QUEUED
    harness.clock.move(restore_hold.SCAN_INTERVAL)
    await harness.janitor.tidy()
    await harness.place()
    assert await state_of(harness, job) is not JobState.QUEUED


async def test_all_that_it_knows_is_from_before_whatever_the_clock_of_the_restore_says(harness: ControlHarness) -> None:
    machine = await unwanted_machine(harness)
    behind = harness.clock.now() - 3600
    await harness.sql(lambda conn: restore_hold.mark_restored(conn, behind, behind))
    await perform(harness)
    assert harness.backend.terminated == []
    await confirm(harness)
    await perform(harness)
    assert [ref.machine for ref in harness.backend.terminated] == [machine]


async def test_a_place_that_does_not_answer_holds_everything(two_backends: ControlHarness) -> None:
    harness = two_backends
    job = await queued_job(harness)
    await restore(harness)
    other: FakeBackend = harness.backends["ssh"]
    other.down = RestoreUnconfirmed("No answer.")
    await harness.janitor.tidy()
    await harness.place()
    assert await state_of(harness, job) is JobState.QUEUED
    await confirm(harness)
    await harness.place()
    assert await state_of(harness, job) is not JobState.QUEUED


async def test_nothing_is_placed_while_a_machine_from_before_may_live(harness: ControlHarness) -> None:
    job = await queued_job(harness)
    before = make_machine(new_id(Prefix.MACHINE, 7), state=MachineState.UP, owner="attempt:x")
    await harness.sql(add_row(t.machines, **codec.machine_row(before)))
    await restore(harness)
    await harness.janitor.tidy()
    await harness.place()
    assert await state_of(harness, job) is JobState.QUEUED


async def test_machines_made_since_are_known_and_end_as_always(harness: ControlHarness) -> None:
    await queued_job(harness)
    await restore(harness)
    harness.clock.move(1)
    await shown_clear(harness)
    await harness.place()
    machine = await harness.host_up()
    await harness.change_machine(machine, f.Unwanted("enough"))
    await perform(harness)
    assert [ref.machine for ref in harness.backend.terminated] == [machine]


async def test_hosts_from_before_get_no_document_and_unknown_ones_are_not_sent_away(harness: ControlHarness) -> None:
    await harness.running()
    machine = (await harness.machine()).id
    await restore(harness)
    for name in (machine, STRANGER):
        with pytest.raises(RestoreUnconfirmed):
            await harness.agents.desired(name, 0, 0)
    await confirm(harness)
    assert await harness.agents.desired(machine, 0, 0) is not None
    with pytest.raises(MachineUnwanted):
        await harness.agents.desired(STRANGER, 0, 0)


async def test_a_runner_that_the_backup_did_not_know_is_not_told_to_end(harness: ControlHarness) -> None:
    await restore(harness)
    runner = FakeRunner(harness.agents, UNKNOWN)
    with pytest.raises(RestoreUnconfirmed):
        await runner.say(MessageKind.STARTED, pid=1)
    with pytest.raises(RestoreUnconfirmed):
        await harness.agents.put_log(UNKNOWN, 0, 0, 0, 0, "0" * 64, b"")
    await confirm(harness)
    with pytest.raises(AttemptGone):
        await runner.say(MessageKind.STARTED, pid=1)


async def test_messages_that_only_the_newer_database_had_are_passed_over_once_nothing_earlier_is_left(
    harness: ControlHarness,
) -> None:
    """The runner was acknowledged up to 10; the backup knows 1; its disk has 6 and later."""
    job, runner = await harness.running()
    runner.n = 10
    with pytest.raises(Gap):
        await runner.say(MessageKind.NOTE, text="before the restore a gap is a gap")
    await restore(harness)
    for n in (10, 5):
        runner.n = n
        assert await runner.say(MessageKind.NOTE, text="later") == 1, "it is asked for what comes after 1"
    runner.n = 5
    assert await runner.end() == 7
    assert await state_of(harness, job) is JobState.COMPLETED


async def test_the_gap_of_one_runner_does_not_forgive_another(harness: ControlHarness) -> None:
    await restore(harness)
    harness.clock.move(1)
    await shown_clear(harness)
    _, runner = await harness.running()
    runner.n = 10
    with pytest.raises(Gap):
        await runner.say(MessageKind.NOTE, text="lost")


@pytest.mark.parametrize("stored_by", ["0.1.0", "today"])
async def test_output_that_was_stored_since_the_backup_is_read_once_its_messages_come_again(
    harness: ControlHarness, stored_by: str
) -> None:
    """The runner's spool still has the messages; the objects are in the store, and nothing in the backup says so."""
    job, runner = await harness.running()
    backup = {table: await harness.rows(table) for table in t.metadata.sorted_tables}
    first, log, model = runner.n, b"epoch 1\nloss nan\n", b"weights"
    await runner.log(0, 0, log)
    await runner.artifact("model.pt", model)
    await go_back(harness, backup)
    if stored_by == "0.1.0":
        await rename_objects(harness, job, runner.attempt)

    runner.n = first
    segment = {"n": 0, "start": 0, "end": len(log), "lines": 2, "sha256": sha(log)}
    await runner.say(MessageKind.LOG, **segment)
    await runner.say(MessageKind.ARTIFACT, path="model.pt", size=len(model), sha256=sha(model))
    assert await runner.end() == first + 4
    assert await state_of(harness, job) is JobState.COMPLETED
    rows = [*await harness.rows(t.log_segments), *await harness.rows(t.artifacts)]
    assert [row["hashed"] for row in rows] == [True, True]

    outputs = service(harness).outputs
    assert (await outputs.logs(OWNER, job, attempt=None, offset=0, limit=100, since=None)).data == log
    assert [hit.text for hit in (await outputs.search_logs(OWNER, job, Query(Pattern("nan")))).items] == ["loss nan"]
    assert (await outputs.artifact(OWNER, job, "model.pt")).read(harness.ports.store.get) == model


async def go_back(harness: ControlHarness, backup: dict[Table, list[dict[str, Any]]]) -> None:
    """Replace all rows by those of the backup, and restore."""

    def replace_rows(conn: Connection) -> None:
        for table in reversed(t.metadata.sorted_tables):
            conn.execute(delete(table))
        for table, rows in backup.items():
            if rows:
                conn.execute(insert(table), rows)

    await harness.sql(replace_rows)
    await restore(harness)


async def rename_objects(harness: ControlHarness, job: str, attempt: str) -> None:
    """Give the objects of the test the keys under which version 0.1.0 stored them."""
    store = harness.ports.store
    for key, _ in list(store.list(attempt_prefix(job, attempt))):
        is_log = key.endswith(".log")
        store.put(
            log_segment_key(job, attempt, 0, 0) if is_log else artifact_key(job, attempt, "model.pt"), store.get(key)
        )
        store.delete(key)


async def test_claims_and_duties_of_the_time_before_are_void(harness: ControlHarness) -> None:
    await harness.submit()
    hold = {"claimed_by": "somebody", "claimed_until": harness.clock.now() + 1e6}
    await harness.sql(lambda conn: conn.execute(update(t.effects).values(hold)).rowcount)
    await harness.sql(lambda conn: restore_hold.mark_restored(conn, harness.clock.now(), 0.0))
    assert {row["claimed_by"] for row in await harness.rows(t.effects)} == {None}
    assert await harness.rows(t.roles) == []


async def test_a_unit_sees_the_hold_in_its_own_transaction(harness: ControlHarness) -> None:
    def both(unit: UnitOfWork) -> tuple[bool, bool]:
        restore_hold.mark_restored(unit.conn, unit.now, 0.0)
        held = restore_hold.is_held(unit.conn)
        restore_hold.confirm(unit.conn, unit.now)
        return held, restore_hold.is_held(unit.conn)

    assert await harness.writer.write(both) == (True, False)
