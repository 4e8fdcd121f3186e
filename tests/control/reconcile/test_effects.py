from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any, TypeVar

import pytest
from structlog.testing import capture_logs
from tests.control.fakes import FakeBackend
from tests.control.world import Rig, secret

from crucible.backends.base import Backend, NotYetGone, Reach, Seen
from crucible.control.db import schema as t
from crucible.control.reconcile.effects import LONGEST_WAIT, LOUD_AFTER, LaunchContext
from crucible.control.reconcile.outbox import CALL_DEADLINE, CLAIM_SECONDS
from crucible.core.errors import TimedOut, Unreachable
from crucible.core.lifecycle import JobState, Machine, MachineState
from crucible.core.lifecycle import facts as f

T = TypeVar("T")


async def effects(rig: Rig) -> list[tuple[str, bool]]:
    return [(e["kind"], e["done"]) for e in await rig.rows(t.effects)]


async def effect(rig: Rig) -> dict[str, Any]:
    (row,) = await rig.rows(t.effects)
    return row


async def intended(rig: Rig) -> Machine:
    await rig.submit()
    return await rig.machine()


async def release(rig: Rig) -> None:
    await rig.change_machine((await rig.machine()).id, f.Unwanted("enough"))


async def settle(rig: Rig, rounds: int = 10) -> None:
    """Performs whatever becomes due, for a while of virtual time."""
    for _ in range(rounds):
        await rig.performer.perform_due()
        due = await rig.performer.next_due()
        if due is None:
            return
        rig.clock.time = max(rig.clock.time, due)


# Launching


async def test_an_answered_launch_is_recorded(rig: Rig) -> None:
    machine = await intended(rig)
    assert await rig.performer.perform_due() == 1
    found = await rig.machine()
    assert (found.state, found.native_id) == (MachineState.CREATING, f"i-{machine.id}")
    assert found.launch_settled
    assert await effects(rig) == [("launch", True)]
    assert await rig.performer.perform_due() == 0
    assert await rig.performer.next_due() is None
    assert len(rig.backend.launches) == 1


async def test_the_bootstrap_has_the_machines_nonce_and_our_address(rig: Rig) -> None:
    machine = await intended(rig)
    await rig.performer.perform_due()
    (given,) = rig.backend.bootstraps
    assert given.nonce == secret("nonce", machine.id).decode()
    assert given.agents_url == "http://agents"
    assert given.nonce not in json.dumps([str(row) for row in await rig.rows(t.machines)])


@pytest.mark.parametrize(("reach", "url"), [(Reach.LOOPBACK, "unix:/socket"), (Reach.INTERNET, "https://open")])
def test_machines_on_this_computer_are_given_an_address_of_their_own(reach: Reach, url: str) -> None:
    async def uninvited(backend: Backend, machine: str) -> None:
        return None

    backend = FakeBackend(capabilities=replace(FakeBackend.capabilities, reach=reach))
    assert LaunchContext(b"key", "https://open", "unix:/socket", uninvited).agents_url_for(backend) == url


async def test_a_refused_launch_ends_the_machine_and_the_job_tries_again(rig: Rig) -> None:
    rig.backend.answers = ["refused", "ok"]
    await intended(rig)
    await rig.performer.perform_due()
    machine = await rig.machine()
    assert machine.state is MachineState.GONE
    assert "no room" in machine.detail
    assert await effects(rig) == [("launch", True)]
    for _ in range(3):
        rig.clock.move(6)
        await rig.reconciler.round()
    (job,) = await rig.rows(t.jobs)
    world = await rig.world(job["id"])
    assert [a.reason for a in world.attempts] == ["launch_failed", None]
    assert len(rig.backend.launches) == 1


async def test_a_refusal_after_a_call_without_an_answer_releases_the_machine(rig: Rig) -> None:
    """The first call may have made a machine that no list shows yet: it is searched for until it cannot come."""
    rig.backend.answers = ["nothing", "refused"]
    machine = await intended(rig)
    await rig.performer.perform_due()
    rig.clock.move(2)
    await rig.performer.perform_due()
    assert (await rig.machine()).state is MachineState.RELEASING
    late = rig.backend.add(machine.id)
    await settle(rig)
    assert (await rig.machine()).state is MachineState.GONE
    assert rig.backend.terminated == [late]


async def test_a_lost_answer_is_found_by_its_token(rig: Rig) -> None:
    rig.backend.answers = ["lost", AssertionError("a second machine")]
    machine = await intended(rig)
    await rig.performer.perform_due()
    assert (await rig.machine()).state is MachineState.INTENDED
    assert (await effect(rig))["error"] == "No answer."
    await settle(rig)
    found = await rig.machine()
    assert (found.state, found.native_id) == (MachineState.CREATING, f"i-{machine.id}")
    assert rig.backend.finds == [machine.id]
    assert len(rig.backend.launches) == 1


async def test_lost_and_not_found_is_sent_again_byte_for_byte(rig: Rig) -> None:
    rig.backend.answers = ["nothing", "nothing", "ok"]
    await intended(rig)
    stored = (await rig.machine()).call
    await settle(rig)
    assert len(rig.backend.launches) == 3
    assert {json.dumps(asdict(call), sort_keys=True) for call in rig.backend.launches} == {stored}
    assert len(rig.backend.made) == 1
    assert (await rig.machine()).launch_settled


async def test_a_machine_that_the_list_does_not_show_yet_is_not_made_twice(rig: Rig) -> None:
    rig.backend.answers, rig.backend.lag = ["lost", "ok"], 1
    await intended(rig)
    await settle(rig)
    assert len(rig.backend.launches) == 2, "the find was empty, so the call was repeated"
    assert len(rig.backend.made) == 1, "and its token made no second machine"


async def test_an_answer_after_the_deadline_counts_as_lost(rig: Rig) -> None:
    await intended(rig)
    rig.calls.hanging.add("local")
    await rig.performer.perform_due()
    assert (await rig.machine()).native_id is None
    rig.calls.hanging.clear()
    await settle(rig)
    assert (await rig.machine()).launch_settled
    assert len(rig.backend.launches) == 1


async def test_a_place_that_cannot_be_reached_is_asked_again_with_growing_waits(rig: Rig) -> None:
    await intended(rig)
    rig.backend.down = Unreachable("The place does not answer.")
    waits = []
    for _ in range(12):
        await rig.performer.perform_due()
        due = await rig.performer.next_due()
        assert due is not None
        waits.append(due - rig.clock.now())
        rig.clock.time = due
    assert waits[:4] == pytest.approx([0.5, 1, 2, 4])
    assert waits[-1] == pytest.approx(LONGEST_WAIT)
    rig.backend.down = None
    await rig.performer.perform_due()
    assert (await rig.machine()).launch_settled


async def test_a_host_seen_before_the_answer_is_not_undone_by_it(rig: Rig) -> None:
    rig.backend.answers = ["lost", "ok"]
    machine = await intended(rig)
    await rig.performer.perform_due()
    await rig.host_speaks(machine.id, f"i-{machine.id}")
    assert (await rig.machine()).state is MachineState.UP
    await settle(rig)
    found = await rig.machine()
    assert (found.state, found.native_id) == (MachineState.UP, f"i-{machine.id}")


async def halted(rig: Rig) -> Machine:
    """A machine that was up, and whose host is to be started again."""
    await rig.running()
    machine = await rig.machine()
    rig.backend.show(machine.id, Seen.HALTED)
    await rig.poller.poll()
    return await rig.machine()


async def test_a_refused_second_launch_is_tried_until_it_is_taken(rig: Rig) -> None:
    machine = await halted(rig)
    rig.backend.answers = [*["refused"] * 3, "ok"]
    await rig.performer.perform_due()
    assert (await rig.machine()).state is MachineState.CREATING
    assert await effects(rig) == [("launch", True), ("launch", False)]
    await settle(rig)
    assert await effects(rig) == [("launch", True), ("launch", True)]
    assert rig.backend.made[machine.id].seen is Seen.UP


async def test_a_second_launch_is_given_up_when_the_machine_is_gone(rig: Rig) -> None:
    machine = await halted(rig)
    rig.backend.answers = ["refused"]
    await rig.performer.perform_due()
    await rig.change_machine(machine.id, f.SeenGone(), f.SeenGone())
    await settle(rig)
    assert await effects(rig) == [("launch", True), ("launch", True)]
    assert await rig.performer.next_due() is None


async def test_every_launch_moves_the_deadline_after_which_absence_counts(rig: Rig) -> None:
    rig.backend.answers = [TimedOut("It hangs."), "nothing"]
    await intended(rig)
    for bound in (CLAIM_SECONDS, rig.backend.capabilities.launch_deadline):
        rig.clock.move(1000)
        await rig.performer.perform_due()
        assert (await rig.machine()).launch_deadline >= rig.clock.now() + bound


# Launches that are not wanted any more


async def test_cancelled_before_the_call_nothing_is_sent(rig: Rig) -> None:
    await intended(rig)
    await release(rig)
    await settle(rig)
    assert rig.backend.launches == []
    assert rig.backend.terminated == []
    assert (await rig.machine()).state is MachineState.GONE
    assert await effects(rig) == [("launch", True), ("terminate", True)]


async def test_cancelled_after_a_lost_call_the_machine_is_found_and_ended(rig: Rig) -> None:
    rig.backend.answers = ["lost", AssertionError("sent again")]
    machine = await intended(rig)
    await rig.performer.perform_due()
    await release(rig)
    await settle(rig)
    assert [ref.machine for ref in rig.backend.terminated] == [machine.id]
    assert rig.backend.made[machine.id].seen is Seen.GONE
    assert (await rig.machine()).state is MachineState.GONE


@pytest.mark.parametrize("delay", [0, 5000])
async def test_cancelled_after_a_lost_call_absence_is_believed_late_and_after_two_looks(rig: Rig, delay: float) -> None:
    rig.backend.answers = ["nothing"]
    await intended(rig)
    rig.clock.move(delay)
    await rig.performer.perform_due()
    await release(rig)
    machine = await rig.machine()
    assert machine.launch_deadline >= rig.clock.now() + CALL_DEADLINE, "counted from the call, not the wish"
    while rig.clock.now() < machine.launch_deadline:
        assert (await rig.machine()).state is MachineState.RELEASING
        await settle(rig, 1)
    looks = len(rig.backend.finds)
    await settle(rig)
    assert (await rig.machine()).state is MachineState.GONE
    assert len(rig.backend.finds) >= looks + 1
    assert (await rig.machine()).empty_finds == 2
    assert len(rig.backend.launches) == 1


async def test_cancelled_while_the_list_lags_the_machine_is_still_ended(rig: Rig) -> None:
    rig.backend.answers, rig.backend.lag = ["lost"], 3
    machine = await intended(rig)
    await rig.performer.perform_due()
    await release(rig)
    await settle(rig, 20)
    assert rig.backend.made[machine.id].seen is Seen.GONE
    assert (await rig.machine()).state is MachineState.GONE


@pytest.mark.parametrize("listed", [True, False])
async def test_released_when_its_host_spoke_but_the_answer_was_lost_it_is_ended(rig: Rig, listed: bool) -> None:
    rig.backend.answers, rig.backend.lag = ["lost"], 0 if listed else 100
    machine = await intended(rig)
    await rig.performer.perform_due()
    await rig.agents.claim(machine.id, secret("nonce", machine.id).decode(), f"i-{machine.id}")
    await rig.agents.desired(machine.id, 0, 0)
    await release(rig)
    await settle(rig, 20)
    assert [ref.native_id for ref in rig.backend.terminated] == [f"i-{machine.id}"]
    assert (await rig.machine()).state is MachineState.GONE


async def test_released_between_the_claim_and_the_answer_it_is_ended_next(rig: Rig) -> None:
    machine = await intended(rig)
    await rig.performer.perform_due()
    await release(rig)
    await settle(rig)
    assert rig.backend.made[machine.id].seen is Seen.GONE
    assert (await rig.machine()).state is MachineState.GONE


# Terminating


async def up_and_released(rig: Rig) -> Machine:
    await rig.submit()
    await rig.host_up()
    await release(rig)
    return await rig.machine()


async def test_a_termination_ends_in_a_machine_that_is_gone(rig: Rig) -> None:
    machine = await up_and_released(rig)
    await rig.performer.perform_due()
    found = await rig.machine()
    assert (found.state, found.gone_at) == (MachineState.GONE, rig.clock.now())
    assert [ref.native_id for ref in rig.backend.terminated] == [machine.native_id]


async def test_a_termination_is_tried_for_ever(rig: Rig) -> None:
    await up_and_released(rig)
    rig.backend.ends = [*[Unreachable("503")] * 30, *[NotYetGone("Stopping.")] * 30, "ok"]
    await settle(rig, 100)
    assert len(rig.backend.terminated) == 61
    assert (await rig.machine()).state is MachineState.GONE
    assert rig.clock.now() > (await rig.rows(t.effects))[-1]["created_at"] + 50 * LONGEST_WAIT * 0.9


@pytest.mark.parametrize("answer", [Unreachable("503"), NotYetGone("Stopping."), "accepted, and nothing happens"])
async def test_a_machine_that_does_not_end_is_told_loudly(rig: Rig, answer: object) -> None:
    await up_and_released(rig)
    rig.backend.ends = [*[answer] * (LOUD_AFTER + 3), "ok"]
    with capture_logs() as told:
        await settle(rig, 100)
    assert [line["log_level"] for line in told].count("error") == 3
    assert {line["event"] for line in told if line["log_level"] == "error"} == {"a machine does not end"}


async def test_what_is_still_there_after_a_termination_is_ended_again(rig: Rig) -> None:
    await up_and_released(rig)
    rig.backend.ends = ["accepted, and nothing happens", "ok"]
    await rig.performer.perform_due()
    assert (await rig.machine()).state is MachineState.RELEASING
    await settle(rig)
    assert (await rig.machine()).state is MachineState.GONE


async def test_a_place_that_cannot_say_is_not_believed(rig: Rig) -> None:
    machine = await up_and_released(rig)
    rig.backend.ends = ["accepted"]
    rig.backend.show(machine.id, Seen.UNREACHABLE)
    await rig.performer.perform_due()
    assert (await rig.machine()).state is MachineState.RELEASING


async def test_already_gone_is_success(rig: Rig) -> None:
    machine = await up_and_released(rig)
    del rig.backend.made[machine.id]
    await rig.performer.perform_due()
    assert (await rig.machine()).state is MachineState.GONE


async def test_a_machine_found_gone_meanwhile_needs_no_call(rig: Rig) -> None:
    machine = await up_and_released(rig)
    await rig.change_machine(machine.id, f.SeenGone(), f.SeenGone())
    await settle(rig)
    assert rig.backend.terminated == []
    assert await effects(rig) == [("launch", True), ("terminate", True)]


async def test_a_termination_stays_open_until_the_settle_window_has_passed(rig: Rig) -> None:
    rig.backend.capabilities = replace(rig.backend.capabilities, settle_window=100.0)
    await rig.connected.refresh()
    await up_and_released(rig)
    await rig.performer.perform_due()
    assert (await rig.machine()).state is MachineState.RELEASING
    assert (await effects(rig))[-1] == ("terminate", False)
    begun = rig.clock.now()
    await settle(rig, 20)
    found = await rig.machine()
    assert found.state is MachineState.GONE
    assert found.gone_at is not None
    assert found.gone_at >= begun + 100
    assert (await effects(rig))[-1] == ("terminate", True)


async def test_a_list_that_hides_it_once_does_not_end_a_termination(rig: Rig) -> None:
    machine = await up_and_released(rig)
    rig.backend.ends = ["accepted, and nothing happens", "ok"]
    rig.backend.made[machine.id].hidden = 1
    await rig.performer.perform_due()
    assert (await rig.machine()).state is MachineState.RELEASING
    await settle(rig)
    assert rig.backend.made[machine.id].seen is Seen.GONE


async def without_an_answer(rig: Rig, machine: Machine) -> None:
    """Its launch is done by the books, and nobody knows what it made."""
    await release(rig)
    done = t.effects.update().where(t.effects.c.machine == machine.id, t.effects.c.kind == "launch")
    await rig.sql(lambda conn: conn.execute(done.values(done=True)).rowcount)


async def test_a_termination_finds_by_its_token_what_it_is_to_end(rig: Rig) -> None:
    rig.backend.answers = ["lost"]
    machine = await intended(rig)
    await rig.performer.perform_due()
    await without_an_answer(rig, machine)
    await settle(rig)
    assert [ref.native_id for ref in rig.backend.terminated] == [f"i-{machine.id}"]
    assert (await rig.machine()).state is MachineState.GONE


async def test_a_termination_that_finds_nothing_waits_until_nothing_can_come(rig: Rig) -> None:
    rig.backend.answers = ["nothing"]
    machine = await intended(rig)
    await rig.performer.perform_due()
    await without_an_answer(rig, machine)
    deadline = (await rig.machine()).launch_deadline
    await settle(rig, 30)
    found = await rig.machine()
    assert found.state is MachineState.GONE
    assert found.gone_at is not None
    assert found.gone_at >= deadline
    assert rig.backend.terminated == []


async def test_of_two_machines_the_claimed_one_is_ended(rig: Rig) -> None:
    machine = await intended(rig)
    await rig.performer.perform_due()
    await rig.agents.claim(machine.id, secret("nonce", machine.id).decode(), "i-claimed")
    await release(rig)
    await settle(rig)
    assert {ref.native_id for ref in rig.backend.terminated} == {"i-claimed"}


async def test_the_job_goes_on_once_its_machine_is_up(rig: Rig) -> None:
    job, runner = await rig.running()
    assert (await rig.world(job)).job.state is JobState.RUNNING
    await runner.end()
    assert (await rig.machine()).state is MachineState.UP
