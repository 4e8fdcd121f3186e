"""Machines that wait in their provider's own queue: their clocks, why the job waits, and their withdrawal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.lifecycle.builders import (
    NOW,
    advance_by,
    live,
    new_world,
    own_machine,
    placed_on,
    run,
    run_step,
    types,
    wanted,
    with_machine_gone,
)

from crucible.core.job.spec import Retries
from crucible.core.lifecycle import JobState, Machine, MachineState, Reason, Status, World, status_of
from crucible.core.lifecycle import facts as f

MACHINE = "mch-of-att-1"
QUEUED = f.SeenQueued("all nodes are busy")
LATER = f.Tick(has_alternative=True)
WAIT = 3600.0


def answered(**more: object) -> Machine:
    """A machine of a backend with a queue, once its launch was answered."""
    machine = replace(own_machine("att-1"), started_at=None, host_due=NOW + 700, **more)
    return advance_by(replace(machine, host_seconds=600.0, life_seconds=9000.0), f.LaunchAnswered("i-1"))


def queued(max_wait: float | None = None) -> World:
    """A job whose machine waits at its provider."""
    world = new_world(Retries(infrastructure=0, interruption=0), max_wait_seconds=max_wait, fallback=("elsewhere",))
    world = run(world, placed_on(world, replace(answered(), state=MachineState.INTENDED, native_id=None), new=True))
    return run(world.with_machine(advance_by(answered(), QUEUED)), f.Tick())


def see(world: World, *facts: f.MachineFact, now: float = NOW) -> World:
    return world.with_machine(advance_by(world.machines[MACHINE], *facts, now=now))


# Clocks


def test_a_machine_in_a_queue_has_no_times() -> None:
    machine = advance_by(answered(), QUEUED, now=NOW + 5)
    assert (machine.state, machine.detail, machine.queued_at) == (MachineState.QUEUED, "all nodes are busy", NOW + 5)
    assert (machine.started_at, machine.host_due, machine.ends_at) == (None, None, None)
    again = advance_by(machine, f.SeenQueued("two are ahead"), now=NOW + 50)
    assert (again.queued_at, again.detail) == (NOW + 5, "two are ahead")


@pytest.mark.parametrize(
    ("reported", "start"),
    [(None, NOW + 500), (NOW + 300, NOW + 300), (NOW + 999, NOW + 500), (NOW - 80, NOW + 500)],
    ids=["not reported", "reported", "in our future", "before it was ordered"],
)
def test_its_clocks_run_from_its_start(reported: float | None, start: float) -> None:
    machine = advance_by(answered(), QUEUED, f.SeenUp(reported), now=NOW + 500)
    assert (machine.state, machine.detail) == (MachineState.CREATING, "")
    assert (machine.started_at, machine.host_due, machine.ends_at) == (start, start + 600, start + 9000)


@pytest.mark.parametrize("sign", [f.HostClaimed("i-1"), f.HostSeen(), f.SeenHalted(), f.SeenUp()])
def test_the_first_sign_of_life_starts_them_and_a_later_one_does_not(sign: f.MachineFact) -> None:
    machine = advance_by(answered(), QUEUED, sign, now=NOW + 70)
    assert machine.state in (MachineState.CREATING, MachineState.UP)
    assert machine.started_at == NOW + 70
    assert advance_by(machine, f.SeenUp(), f.SeenUp(NOW + 90), now=NOW + 100).started_at == NOW + 70


def test_the_providers_time_counts_even_after_the_host_came() -> None:
    machine = advance_by(answered(), QUEUED, f.HostClaimed("i-1"), now=NOW + 70)
    moved = advance_by(machine, f.SeenUp(NOW + 30), now=NOW + 80)
    assert (moved.started_at, moved.ends_at) == (NOW + 30, NOW + 30 + 9000)


def test_one_that_ran_between_two_looks_had_started() -> None:
    machine = advance_by(answered(), QUEUED, f.SeenGone(started_at=NOW + 10), f.SeenGone(), now=NOW + 60)
    assert (machine.state, machine.started_at) == (MachineState.GONE, NOW + 10)


def test_a_late_answer_does_not_queue_what_has_started() -> None:
    machine = advance_by(answered(), QUEUED, f.HostSeen(), QUEUED, now=NOW + 70)
    assert (machine.state, machine.queued_at) == (MachineState.UP, NOW + 70)


def test_the_clocks_of_other_machines_run_from_their_placement() -> None:
    machine = replace(own_machine("att-1"), host_due=NOW + 600, ends_at=NOW + 9000)
    seen = advance_by(machine, f.LaunchAnswered("i-1"), QUEUED, f.SeenUp(NOW + 50), f.HostSeen(), now=NOW + 60)
    assert (seen.host_due, seen.ends_at, seen.started_at) == (NOW + 600, NOW + 9000, NOW)


def test_a_launch_that_is_never_answered_is_given_up() -> None:
    world = new_world()
    machine = replace(own_machine("att-1"), started_at=None, host_due=NOW + 700, host_seconds=600.0, lease_seconds=60.0)
    here = run(world, placed_on(world, machine, new=True))
    assert wanted(run_step(here, f.Tick(), now=NOW + 800).effects) == [("terminate", MACHINE)]


def test_it_may_wait_for_a_year() -> None:
    step = run_step(see(queued(), QUEUED), f.Tick(), now=NOW + 366 * 86400)
    assert (step.effects, live(step.world).reason) == ((), None)


# The job meanwhile


def test_a_job_whose_machine_waits_is_queued_and_says_why_and_since_when() -> None:
    job = queued().job
    assert status_of(job.state) is Status.QUEUED
    assert job.waiting == (
        "waits in the queue of local since 1970-01-12 13:46 UTC: all nodes are busy "
        "(it goes on waiting; --max-wait sets a limit)"
    )


def test_it_stops_saying_so_once_the_machine_has_started() -> None:
    world = run(see(queued(), f.SeenUp()), f.Tick())
    assert (world.job.waiting, world.job.state) == ("", JobState.PROVISIONING)
    assert run(see(world, f.HostSeen()), f.Tick()).job.state is JobState.STARTING


def test_a_machine_that_leaves_the_queue_unstarted_ends_the_attempt_uncharged() -> None:
    job = run(with_machine_gone(queued(), MACHINE), f.Tick()).job
    assert (job.state, job.reason) == (JobState.QUEUED, None)


def test_a_cancel_ends_a_job_that_waits_at_once_and_releases_its_machine() -> None:
    step = run_step(queued(), f.CancelRequested())
    assert step.world.job.state is JobState.CANCELLED
    assert wanted(step.effects) == [("terminate", MACHINE)]


# Withdrawal


def test_a_job_that_has_waited_for_too_long_is_withdrawn_once() -> None:
    world = queued(WAIT)
    assert world.job.due_at is not None
    assert wanted(run_step(world, LATER, now=NOW + WAIT - 1).effects) == []
    step = run_step(world, LATER, LATER, now=NOW + WAIT)
    assert wanted(step.effects) == [("withdraw", MACHINE)]
    machine = step.world.machines[MACHINE]
    assert (machine.state, machine.withdrawing) == (MachineState.QUEUED, True)
    assert "is being withdrawn: it waited in the queue of local for longer than 1h 00m" in step.world.job.waiting


def test_it_is_due_when_it_has_waited_for_as_long_as_it_may() -> None:
    assert run(queued(30.0), f.Tick(), now=NOW + 1).job.due_at == NOW + 30


def test_one_without_room_elsewhere_stays_and_says_so() -> None:
    step = run_step(queued(WAIT), f.Tick(), now=NOW + WAIT)
    assert wanted(step.effects) == []
    assert "longer than 1h 00m, but no other of its backends has room for it now" in step.world.job.waiting


def test_one_without_a_limit_is_never_withdrawn() -> None:
    assert wanted(run_step(queued(), LATER, now=NOW + 1e7).effects) == []


def withdrawing() -> World:
    return run(queued(WAIT), LATER, now=NOW + WAIT)


def test_a_withdrawn_machine_is_released_and_its_job_goes_on_elsewhere_once_it_is_gone() -> None:
    world = see(withdrawing(), f.Withdrawn(), now=NOW + WAIT + 1)
    assert world.machines[MACHINE].state is MachineState.RELEASING
    assert live(run(world, LATER, now=NOW + WAIT + 2)).reason is None, "not before its provider says that it is gone"
    step = run_step(with_machine_gone(world, MACHINE, now=NOW + WAIT + 3), f.Tick(), now=NOW + WAIT + 3)
    job = step.world.job
    assert step.world.attempts[0].reason is Reason.WITHDRAWN
    assert (job.state, job.used, job.not_before) == (JobState.QUEUED, {}, NOW + WAIT + 3)
    assert types(step.events) == ["attempt_ended", "retrying"]


@pytest.mark.parametrize("sign", [f.HostClaimed("i-1"), f.SeenUp(), f.AlreadyStarted(), f.HostSeen()])
def test_one_that_has_started_meanwhile_keeps_its_job(sign: f.MachineFact) -> None:
    world = see(withdrawing(), sign, f.Withdrawn(), now=NOW + WAIT + 1)
    machine = world.machines[MACHINE]
    assert machine.state in (MachineState.CREATING, MachineState.UP)
    assert not machine.withdrawing
    assert wanted(run_step(world, LATER, now=NOW + WAIT + 2).effects) == []


def test_an_answer_that_comes_after_the_release_changes_nothing() -> None:
    world = see(withdrawing(), f.Unwanted("the job was cancelled"), now=NOW + WAIT + 1)
    for fact in (f.Withdrawn(), f.Withdraw("again")):
        assert see(world, fact, now=NOW + WAIT + 2) == world


def test_what_runs_is_not_withdrawn() -> None:
    machine = advance_by(answered(), QUEUED, f.HostSeen(), f.Withdraw("it waited"), f.Withdrawn())
    assert (machine.state, machine.withdrawing) == (MachineState.UP, False)


def test_an_agent_that_cannot_have_begun_is_not_fenced() -> None:
    world = queued()
    leased = world.with_machine(replace(world.machines[MACHINE], lease_seconds=60.0))
    assert live(run(leased, f.Tick(), now=NOW + 1e6)).reason is None
