"""Cancelling in every phase."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.core.lifecycle.builders import (
    NOW,
    ended,
    exited,
    finish,
    launching,
    live,
    lose_machine,
    new_world,
    own_machine,
    placed,
    placed_on,
    pool_machine,
    run,
    run_step,
    running,
    saving,
    staging,
    types,
    wanted,
)

from crucible.core.lifecycle import DesiredState, JobState, MachineState, Reason, World, advance, advance_machine
from crucible.core.lifecycle import facts as f

CANCEL = f.CancelRequested()
WITH_A_RUNNER = [placed, staging, running, saving]


def pending() -> World:
    world = new_world()
    return replace(world, job=replace(world.job, state=JobState.PENDING))


def blocked() -> World:
    world = new_world()
    return replace(world, job=replace(world.job, state=JobState.BLOCKED))


def retrying() -> World:
    return finish(running(), Reason.RUNNER_LOST).world


@pytest.mark.parametrize("make", [pending, blocked, new_world, retrying])
def test_a_job_without_an_attempt_is_cancelled_at_once(make: Callable[[], World]) -> None:
    step = advance(make(), CANCEL, NOW + 1)
    job = step.world.job
    assert (job.state, job.reason, job.ended_at) == (JobState.CANCELLED, Reason.CANCELLED, NOW + 1)
    assert types(step.events) == ["cancel_requested", "cancelled"]
    assert step.effects == ()


@pytest.mark.parametrize("make", WITH_A_RUNNER)
def test_a_runner_is_told_and_the_job_waits_for_it(make: Callable[[], World]) -> None:
    world = make()
    step = advance(world, CANCEL, NOW)
    job = step.world.job
    assert (job.state, job.desired) == (JobState.STOPPING, DesiredState.CANCEL)
    assert job.generation == world.job.generation + 1
    assert step.touched == {"mch-pool"}
    assert types(step.events) == ["cancel_requested"]


@pytest.mark.parametrize("make", WITH_A_RUNNER)
@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.COMPLETED])
def test_whatever_the_process_did_meanwhile_the_job_is_cancelled(make: Callable[[], World], reason: Reason) -> None:
    step = finish(run(make(), CANCEL), reason)
    assert (step.world.job.state, step.world.job.reason) == (JobState.CANCELLED, Reason.CANCELLED)
    assert step.world.live is None
    assert step.effects == ()


def test_a_cancel_while_its_outputs_are_saved_cancels_it() -> None:
    job = run(saving(), CANCEL, ended()).job
    assert (job.state, job.reason) == (JobState.CANCELLED, Reason.CANCELLED)


@pytest.mark.parametrize("make", [placed, staging, running])
def test_a_program_that_completed_before_it_could_be_stopped_has_completed(make: Callable[[], World]) -> None:
    job = finish(run(make(), CANCEL), Reason.COMPLETED, 0).world.job
    assert (job.state, job.reason, job.exit_code) == (JobState.COMPLETED, Reason.COMPLETED, 0)


@pytest.mark.parametrize("make", WITH_A_RUNNER)
def test_a_machine_that_is_gone_confirms_it_too(make: Callable[[], World]) -> None:
    step = lose_machine(run(make(), CANCEL))
    assert step.world.job.state is JobState.CANCELLED


@pytest.mark.parametrize("make", WITH_A_RUNNER)
def test_a_pool_machine_is_not_released(make: Callable[[], World]) -> None:
    step = run_step(make(), CANCEL, exited(Reason.CANCELLED), ended())
    assert step.effects == ()
    assert step.world.machines["mch-pool"].state is MachineState.UP


def test_a_machine_that_no_host_has_claimed_is_released_and_the_job_cancelled_at_once() -> None:
    step = advance(launching(), CANCEL, NOW)
    assert wanted(step.effects) == [("terminate", "mch-of-att-1")]
    assert step.world.machines["mch-of-att-1"].state is MachineState.RELEASING
    assert step.world.job.state is JobState.CANCELLED
    assert all(slot.ended for slot in step.world.attempts[-1].slots)


def test_a_slot_on_a_pool_machine_that_no_host_has_claimed_is_free_at_once() -> None:
    queued = new_world()
    world = run(queued, placed_on(queued, pool_machine(MachineState.INTENDED), new=True))
    step = advance(world, CANCEL, NOW)
    assert step.world.job.state is JobState.CANCELLED
    assert step.effects == ()
    assert step.touched == {"mch-pool"}
    assert step.world.machines["mch-pool"].state is MachineState.INTENDED
    assert all(slot.ended for slot in step.world.attempts[-1].slots)


def claimed_world() -> World:
    world = launching()
    machine = world.machines["mch-of-att-1"]
    return world.with_machine(replace(machine, claimed_by="native", native_id="native", launch_settled=True))


def test_once_a_host_has_claimed_it_the_job_waits_until_the_machine_is_gone() -> None:
    world = run(claimed_world(), CANCEL, f.Tick())
    assert run(world, f.Tick(), now=NOW + 1).job.state is JobState.STOPPING
    machine = world.machines["mch-of-att-1"]
    assert machine.state is MachineState.RELEASING
    for _ in range(2):
        machine = advance_machine(machine, f.SeenGone(), NOW).machine
    step = run_step(world.with_machine(machine), f.Tick(), now=NOW + 10)
    assert step.world.job.state is JobState.CANCELLED
    assert step.effects == ()


def test_a_runner_on_its_own_machine_may_save_before_the_machine_is_released() -> None:
    queued = new_world()
    own = own_machine("att-1", MachineState.UP)
    here = run(queued, placed_on(queued, own, new=True), f.RunnerStarted("att-1", 0, 42))
    step = advance(here, CANCEL, NOW)
    assert step.effects == ()
    done = run_step(step.world, exited(Reason.CANCELLED), ended())
    assert wanted(done.effects) == [("terminate", "mch-of-att-1")]
    assert done.world.job.state is JobState.CANCELLED


def test_asking_again_changes_nothing() -> None:
    once = run(running(), CANCEL)
    again = advance(once, f.CancelRequested("someone else"), NOW)
    assert (again.world, again.events, again.effects) == (once, (), ())


def test_after_a_cancel_nothing_is_placed() -> None:
    world = run(running(), CANCEL)
    step = advance(world, placed_on(world, pool_machine(id="mch-2")), NOW)
    assert (step.world, step.effects) == (world, ())


def test_a_stop_that_nobody_asked_for_is_our_trouble() -> None:
    world = finish(running(), Reason.CANCELLED).world
    assert world.attempts[0].reason is Reason.RUNNER_LOST
    assert world.job.state is JobState.QUEUED


def test_who_asked_is_remembered() -> None:
    step = advance(running(), f.CancelRequested("ada"), NOW)
    assert step.events[0].data == {"by": "ada"}
    assert live(step.world).id == "att-1"
