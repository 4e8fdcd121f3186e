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

from crucible.core.lifecycle import JobState, MachineState, Reason, Wish, World, advance, advance_machine
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
    assert (job.state, job.desired) == (JobState.STOPPING, Wish.CANCEL)
    assert job.generation == world.job.generation + 1
    assert step.touched == {"mch-pool"}
    assert types(step.events) == ["cancel_requested"]


@pytest.mark.parametrize("make", WITH_A_RUNNER)
@pytest.mark.parametrize("reason", Reason)
def test_whatever_the_process_did_meanwhile_the_job_is_cancelled(
    make: Callable[[], World], reason: Reason
) -> None:
    step = finish(run(make(), CANCEL), reason)
    assert (step.world.job.state, step.world.job.reason) == (JobState.CANCELLED, Reason.CANCELLED)
    assert step.world.live is None
    assert step.effects == ()


@pytest.mark.parametrize("make", WITH_A_RUNNER)
def test_a_machine_that_is_gone_confirms_it_too(make: Callable[[], World]) -> None:
    step = lose_machine(run(make(), CANCEL))
    assert step.world.job.state is JobState.CANCELLED


@pytest.mark.parametrize("make", WITH_A_RUNNER)
def test_a_pool_machine_is_not_released(make: Callable[[], World]) -> None:
    step = run_step(make(), CANCEL, exited(Reason.CANCELLED), ended())
    assert step.effects == ()
    assert step.world.machines["mch-pool"].state is MachineState.UP


def test_a_machine_that_was_made_for_the_attempt_is_released_at_once() -> None:
    step = advance(launching(), CANCEL, NOW)
    assert wanted(step.effects) == [("terminate", "mch-of-att-1")]
    assert step.world.machines["mch-of-att-1"].state is MachineState.RELEASING
    assert step.world.job.state is JobState.STOPPING


def test_that_job_is_cancelled_once_the_machine_is_gone_and_not_before() -> None:
    world = run(launching(), CANCEL, f.Tick())
    assert run(world, f.Tick(), now=NOW + 1).job.state is JobState.STOPPING
    refused = advance_machine(world.machines["mch-of-att-1"], f.LaunchRefused("cancelled"), NOW).machine
    step = run_step(world.with_machine(refused), f.Tick(), now=NOW + 10)
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
