from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any, TypeVar

import pytest
from structlog.testing import capture_logs
from tests.control.fakes import FakeBackend
from tests.control.harness import ControlHarness, secret

from crucible.backends.base import Backend, NotYetGone, Reach, Seen
from crucible.control.db import schema as t
from crucible.control.reconcile.effects import LONGEST_WAIT, LOUD_AFTER, LaunchContext
from crucible.control.reconcile.outbox import CALL_DEADLINE, CLAIM_SECONDS
from crucible.core.errors import TimedOut, Unreachable
from crucible.core.lifecycle import JobState, Machine, MachineState
from crucible.core.lifecycle import facts as f

T = TypeVar("T")


async def effects(harness: ControlHarness) -> list[tuple[str, bool]]:
    return [(e["kind"], e["done"]) for e in await harness.rows(t.effects)]


async def effect(harness: ControlHarness) -> dict[str, Any]:
    (row,) = await harness.rows(t.effects)
    return row


async def intended(harness: ControlHarness) -> Machine:
    await harness.submit()
    return await harness.machine()


async def release(harness: ControlHarness) -> None:
    await harness.change_machine((await harness.machine()).id, f.Unwanted("enough"))


async def settle(harness: ControlHarness, rounds: int = 10) -> None:
    """Performs whatever becomes due, for a while of virtual time."""
    for _ in range(rounds):
        await harness.performer.perform_due()
        due = await harness.performer.next_due()
        if due is None:
            return
        harness.clock.time = max(harness.clock.time, due)


# Launching


async def test_an_answered_launch_is_recorded(harness: ControlHarness) -> None:
    machine = await intended(harness)
    assert await harness.performer.perform_due() == 1
    found = await harness.machine()
    assert (found.state, found.native_id) == (MachineState.CREATING, f"i-{machine.id}")
    assert found.launch_settled
    assert await effects(harness) == [("launch", True)]
    assert await harness.performer.perform_due() == 0
    assert await harness.performer.next_due() is None
    assert len(harness.backend.launches) == 1


async def test_the_bootstrap_has_the_machines_nonce_and_our_address(harness: ControlHarness) -> None:
    machine = await intended(harness)
    await harness.performer.perform_due()
    (given,) = harness.backend.bootstraps
    assert given.nonce == secret("nonce", machine.id).decode()
    assert given.agents_url == "http://agents"
    assert given.nonce not in json.dumps([str(row) for row in await harness.rows(t.machines)])


@pytest.mark.parametrize(
    ("reach", "url"),
    [
        (Reach.SAME_COMPUTER, "unix:/socket"),
        (Reach.LOOPBACK, "unix:/socket"),
        (Reach.TUNNEL, "unix:/socket"),
        (Reach.INTERNET, "https://open"),
    ],
)
def test_machines_on_this_computer_are_given_an_address_of_their_own(reach: Reach, url: str) -> None:
    async def uninvited(backend: Backend, machine: str, agent: str | None) -> None:
        return None

    async def publish(sha256: str) -> None:
        return None

    backend = FakeBackend(capabilities=replace(FakeBackend.capabilities, reach=reach))
    context = LaunchContext(b"key", "https://open", "unix:/socket", uninvited, publish)
    assert context.agents_url_for(backend) == url


async def test_a_refused_launch_ends_the_machine_and_the_job_tries_again(harness: ControlHarness) -> None:
    harness.backend.answers = ["refused", "ok"]
    await intended(harness)
    await harness.performer.perform_due()
    machine = await harness.machine()
    assert machine.state is MachineState.GONE
    assert "no room" in machine.detail
    assert await effects(harness) == [("launch", True)]
    for _ in range(3):
        harness.clock.move(6)
        await harness.reconciler.round()
    (job,) = await harness.rows(t.jobs)
    world = await harness.world(job["id"])
    assert [a.reason for a in world.attempts] == ["launch_failed", None]
    assert len(harness.backend.launches) == 1


async def test_a_refusal_after_a_call_without_an_answer_releases_the_machine(harness: ControlHarness) -> None:
    """The first call may have made a machine that no list shows yet: it is searched for until it cannot come."""
    harness.backend.answers = ["nothing", "refused"]
    machine = await intended(harness)
    await harness.performer.perform_due()
    harness.clock.move(2)
    await harness.performer.perform_due()
    assert (await harness.machine()).state is MachineState.RELEASING
    late = harness.backend.add(machine.id)
    await settle(harness)
    assert (await harness.machine()).state is MachineState.GONE
    assert harness.backend.terminated == [late]


async def test_a_lost_answer_is_found_by_its_token(harness: ControlHarness) -> None:
    harness.backend.answers = ["lost", AssertionError("a second machine")]
    machine = await intended(harness)
    await harness.performer.perform_due()
    assert (await harness.machine()).state is MachineState.INTENDED
    assert (await effect(harness))["error"] == "No answer."
    await settle(harness)
    found = await harness.machine()
    assert (found.state, found.native_id) == (MachineState.CREATING, f"i-{machine.id}")
    assert harness.backend.finds == [machine.id]
    assert len(harness.backend.launches) == 1


async def test_lost_and_not_found_is_sent_again_byte_for_byte(harness: ControlHarness) -> None:
    harness.backend.answers = ["nothing", "nothing", "ok"]
    await intended(harness)
    stored = (await harness.machine()).call
    await settle(harness)
    assert len(harness.backend.launches) == 3
    assert {json.dumps(asdict(call), sort_keys=True) for call in harness.backend.launches} == {stored}
    assert len(harness.backend.made) == 1
    assert (await harness.machine()).launch_settled


async def test_a_machine_that_the_list_does_not_show_yet_is_not_made_twice(harness: ControlHarness) -> None:
    harness.backend.answers, harness.backend.lag = ["lost", "ok"], 1
    await intended(harness)
    await settle(harness)
    assert len(harness.backend.launches) == 2, "the find was empty, so the call was repeated"
    assert len(harness.backend.made) == 1, "and its token made no second machine"


async def test_an_answer_after_the_deadline_counts_as_lost(harness: ControlHarness) -> None:
    await intended(harness)
    harness.calls.hanging.add("local")
    await harness.performer.perform_due()
    assert (await harness.machine()).native_id is None
    harness.calls.hanging.clear()
    await settle(harness)
    assert (await harness.machine()).launch_settled
    assert len(harness.backend.launches) == 1


async def test_a_place_that_cannot_be_reached_is_asked_again_with_growing_waits(harness: ControlHarness) -> None:
    await intended(harness)
    harness.backend.down = Unreachable("The place does not answer.")
    waits = []
    for _ in range(12):
        await harness.performer.perform_due()
        due = await harness.performer.next_due()
        assert due is not None
        waits.append(due - harness.clock.now())
        harness.clock.time = due
    assert waits[:4] == pytest.approx([0.5, 1, 2, 4])
    assert waits[-1] == pytest.approx(LONGEST_WAIT)
    harness.backend.down = None
    await harness.performer.perform_due()
    assert (await harness.machine()).launch_settled


async def test_a_host_seen_before_the_answer_is_not_undone_by_it(harness: ControlHarness) -> None:
    harness.backend.answers = ["lost", "ok"]
    machine = await intended(harness)
    await harness.performer.perform_due()
    await harness.host_speaks(machine.id, f"i-{machine.id}")
    assert (await harness.machine()).state is MachineState.UP
    await settle(harness)
    found = await harness.machine()
    assert (found.state, found.native_id) == (MachineState.UP, f"i-{machine.id}")


async def halted(harness: ControlHarness) -> Machine:
    """A machine that was up, and whose host is to be started again."""
    await harness.running()
    machine = await harness.machine()
    harness.backend.show(machine.id, Seen.HALTED)
    await harness.poller.poll()
    return await harness.machine()


async def test_a_refused_second_launch_is_tried_until_it_is_taken(harness: ControlHarness) -> None:
    machine = await halted(harness)
    harness.backend.answers = [*["refused"] * 3, "ok"]
    await harness.performer.perform_due()
    assert (await harness.machine()).state is MachineState.CREATING
    assert await effects(harness) == [("launch", True), ("launch", False)]
    await settle(harness)
    assert await effects(harness) == [("launch", True), ("launch", True)]
    assert harness.backend.made[machine.id].seen is Seen.UP


async def test_a_second_launch_is_given_up_when_the_machine_is_gone(harness: ControlHarness) -> None:
    machine = await halted(harness)
    harness.backend.answers = ["refused"]
    await harness.performer.perform_due()
    await harness.change_machine(machine.id, f.SeenGone(), f.SeenGone())
    await settle(harness)
    assert await effects(harness) == [("launch", True), ("launch", True)]
    assert await harness.performer.next_due() is None


async def test_every_launch_moves_the_deadline_after_which_absence_counts(harness: ControlHarness) -> None:
    harness.backend.answers = [TimedOut("It hangs."), "nothing"]
    await intended(harness)
    for bound in (CLAIM_SECONDS, harness.backend.capabilities.launch_deadline):
        harness.clock.move(1000)
        await harness.performer.perform_due()
        assert (await harness.machine()).launch_deadline >= harness.clock.now() + bound


# Launches that are not wanted any more


async def test_cancelled_before_the_call_nothing_is_sent(harness: ControlHarness) -> None:
    await intended(harness)
    await release(harness)
    await settle(harness)
    assert harness.backend.launches == []
    assert harness.backend.terminated == []
    assert (await harness.machine()).state is MachineState.GONE
    assert await effects(harness) == [("launch", True), ("terminate", True)]


async def test_cancelled_after_a_lost_call_the_machine_is_found_and_ended(harness: ControlHarness) -> None:
    harness.backend.answers = ["lost", AssertionError("sent again")]
    machine = await intended(harness)
    await harness.performer.perform_due()
    await release(harness)
    await settle(harness)
    assert [ref.machine for ref in harness.backend.terminated] == [machine.id]
    assert harness.backend.made[machine.id].seen is Seen.GONE
    assert (await harness.machine()).state is MachineState.GONE


@pytest.mark.parametrize("delay", [0, 5000])
async def test_cancelled_after_a_lost_call_absence_is_believed_late_and_after_two_looks(
    harness: ControlHarness, delay: float
) -> None:
    harness.backend.answers = ["nothing"]
    await intended(harness)
    harness.clock.move(delay)
    await harness.performer.perform_due()
    await release(harness)
    machine = await harness.machine()
    assert machine.launch_deadline >= harness.clock.now() + CALL_DEADLINE, "counted from the call, not the wish"
    while harness.clock.now() < machine.launch_deadline:
        assert (await harness.machine()).state is MachineState.RELEASING
        await settle(harness, 1)
    looks = len(harness.backend.finds)
    await settle(harness)
    assert (await harness.machine()).state is MachineState.GONE
    assert len(harness.backend.finds) >= looks + 1
    assert (await harness.machine()).empty_finds == 2
    assert len(harness.backend.launches) == 1


async def test_cancelled_while_the_list_lags_the_machine_is_still_ended(harness: ControlHarness) -> None:
    harness.backend.answers, harness.backend.lag = ["lost"], 3
    machine = await intended(harness)
    await harness.performer.perform_due()
    await release(harness)
    await settle(harness, 20)
    assert harness.backend.made[machine.id].seen is Seen.GONE
    assert (await harness.machine()).state is MachineState.GONE


@pytest.mark.parametrize("listed", [True, False])
async def test_released_when_its_host_spoke_but_the_answer_was_lost_it_is_ended(
    harness: ControlHarness, listed: bool
) -> None:
    harness.backend.answers, harness.backend.lag = ["lost"], 0 if listed else 100
    machine = await intended(harness)
    await harness.performer.perform_due()
    await harness.agents.claim(machine.id, secret("nonce", machine.id).decode(), f"i-{machine.id}")
    await harness.agents.desired(machine.id, 0, 0)
    await release(harness)
    await settle(harness, 20)
    assert [ref.native_id for ref in harness.backend.terminated] == [f"i-{machine.id}"]
    assert (await harness.machine()).state is MachineState.GONE


async def test_released_between_the_claim_and_the_answer_it_is_ended_next(harness: ControlHarness) -> None:
    machine = await intended(harness)
    await harness.performer.perform_due()
    await release(harness)
    await settle(harness)
    assert harness.backend.made[machine.id].seen is Seen.GONE
    assert (await harness.machine()).state is MachineState.GONE


# Terminating


async def up_and_released(harness: ControlHarness) -> Machine:
    await harness.submit()
    await harness.host_up()
    await release(harness)
    return await harness.machine()


async def test_a_termination_ends_in_a_machine_that_is_gone(harness: ControlHarness) -> None:
    machine = await up_and_released(harness)
    await harness.performer.perform_due()
    found = await harness.machine()
    assert (found.state, found.gone_at) == (MachineState.GONE, harness.clock.now())
    assert [ref.native_id for ref in harness.backend.terminated] == [machine.native_id]


async def test_a_termination_is_tried_for_ever(harness: ControlHarness) -> None:
    await up_and_released(harness)
    harness.backend.ends = [*[Unreachable("503")] * 30, *[NotYetGone("Stopping.")] * 30, "ok"]
    await settle(harness, 100)
    assert len(harness.backend.terminated) == 61
    assert (await harness.machine()).state is MachineState.GONE
    assert harness.clock.now() > (await harness.rows(t.effects))[-1]["created_at"] + 50 * LONGEST_WAIT * 0.9


@pytest.mark.parametrize("answer", [Unreachable("503"), NotYetGone("Stopping."), "accepted, and nothing happens"])
async def test_a_machine_that_does_not_end_is_told_loudly(harness: ControlHarness, answer: object) -> None:
    await up_and_released(harness)
    harness.backend.ends = [*[answer] * (LOUD_AFTER + 3), "ok"]
    with capture_logs() as told:
        await settle(harness, 100)
    assert [line["log_level"] for line in told].count("error") == 3
    assert {line["event"] for line in told if line["log_level"] == "error"} == {"a machine does not end"}


async def test_what_is_still_there_after_a_termination_is_ended_again(harness: ControlHarness) -> None:
    await up_and_released(harness)
    harness.backend.ends = ["accepted, and nothing happens", "ok"]
    await harness.performer.perform_due()
    assert (await harness.machine()).state is MachineState.RELEASING
    await settle(harness)
    assert (await harness.machine()).state is MachineState.GONE


async def test_a_place_that_cannot_say_is_not_believed(harness: ControlHarness) -> None:
    machine = await up_and_released(harness)
    harness.backend.ends = ["accepted"]
    harness.backend.show(machine.id, Seen.UNREACHABLE)
    await harness.performer.perform_due()
    assert (await harness.machine()).state is MachineState.RELEASING


async def test_already_gone_is_success(harness: ControlHarness) -> None:
    machine = await up_and_released(harness)
    del harness.backend.made[machine.id]
    await harness.performer.perform_due()
    assert (await harness.machine()).state is MachineState.GONE


async def test_a_machine_found_gone_meanwhile_needs_no_call(harness: ControlHarness) -> None:
    machine = await up_and_released(harness)
    await harness.change_machine(machine.id, f.SeenGone(), f.SeenGone())
    await settle(harness)
    assert harness.backend.terminated == []
    assert await effects(harness) == [("launch", True), ("terminate", True)]


async def test_a_termination_stays_open_until_the_settle_window_has_passed(harness: ControlHarness) -> None:
    harness.backend.capabilities = replace(harness.backend.capabilities, settle_window=100.0)
    await harness.offers.refresh()
    await up_and_released(harness)
    await harness.performer.perform_due()
    assert (await harness.machine()).state is MachineState.RELEASING
    assert (await effects(harness))[-1] == ("terminate", False)
    begun = harness.clock.now()
    await settle(harness, 20)
    found = await harness.machine()
    assert found.state is MachineState.GONE
    assert found.gone_at is not None
    assert found.gone_at >= begun + 100
    assert (await effects(harness))[-1] == ("terminate", True)


async def test_a_list_that_hides_it_once_does_not_end_a_termination(harness: ControlHarness) -> None:
    machine = await up_and_released(harness)
    harness.backend.ends = ["accepted, and nothing happens", "ok"]
    harness.backend.made[machine.id].hidden = 1
    await harness.performer.perform_due()
    assert (await harness.machine()).state is MachineState.RELEASING
    await settle(harness)
    assert harness.backend.made[machine.id].seen is Seen.GONE


async def without_an_answer(harness: ControlHarness, machine: Machine) -> None:
    """Its launch is done by the books, and nobody knows what it made."""
    await release(harness)
    done = t.effects.update().where(t.effects.c.machine == machine.id, t.effects.c.kind == "launch")
    await harness.sql(lambda conn: conn.execute(done.values(done=True)).rowcount)


async def test_a_termination_finds_by_its_token_what_it_is_to_end(harness: ControlHarness) -> None:
    harness.backend.answers = ["lost"]
    machine = await intended(harness)
    await harness.performer.perform_due()
    await without_an_answer(harness, machine)
    await settle(harness)
    assert [ref.native_id for ref in harness.backend.terminated] == [f"i-{machine.id}"]
    assert (await harness.machine()).state is MachineState.GONE


async def test_a_termination_that_finds_nothing_waits_until_nothing_can_come(harness: ControlHarness) -> None:
    harness.backend.answers = ["nothing"]
    machine = await intended(harness)
    await harness.performer.perform_due()
    await without_an_answer(harness, machine)
    deadline = (await harness.machine()).launch_deadline
    await settle(harness, 30)
    found = await harness.machine()
    assert found.state is MachineState.GONE
    assert found.gone_at is not None
    assert found.gone_at >= deadline
    assert harness.backend.terminated == []


async def test_of_two_machines_the_claimed_one_is_ended(harness: ControlHarness) -> None:
    machine = await intended(harness)
    await harness.performer.perform_due()
    await harness.agents.claim(machine.id, secret("nonce", machine.id).decode(), "i-claimed")
    await release(harness)
    await settle(harness)
    assert {ref.native_id for ref in harness.backend.terminated} == {"i-claimed"}


async def test_the_job_goes_on_once_its_machine_is_up(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    assert (await harness.world(job)).job.state is JobState.RUNNING
    await runner.end()
    assert (await harness.machine()).state is MachineState.UP
