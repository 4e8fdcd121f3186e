"""An attempt that is stopped without its job: it saves, ends uncharged, and the job continues in another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.core.lifecycle.builders import (
    NOW,
    advance_by,
    ended,
    exited,
    finish,
    launching,
    live,
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
    started,
    types,
    wanted,
    with_machine_gone,
)

from crucible.core.job.spec import Retries
from crucible.core.lifecycle import AttemptState, DesiredState, JobState, MachineState, Reason, World
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.silence import NOTICE_AFTER, SETTLE_WINDOW, STOP_SECONDS

NONE = Retries(interruption=0, infrastructure=0, user=0)
STOP = f.StopAttempt("att-1", "another job needs its machine")


def on_own() -> World:
    """A program that runs on a machine of its own."""
    world = new_world(NONE)
    up = own_machine("att-1", MachineState.UP)
    return run(run(world, placed_on(world, up, new=True)), started())


def test_its_runner_is_asked_to_stop_and_its_machine_stays() -> None:
    step = run_step(on_own(), STOP)
    assert (step.effects, types(step.events)) == ((), ["stopping"])
    assert step.touched == {"mch-of-att-1"}
    assert live(step.world).stopping_since == NOW
    assert (step.world.job.desired, step.world.job.generation) == (DesiredState.RUN, 1)


def test_it_ends_as_stopped_and_the_job_continues_uncharged_at_once() -> None:
    step = run_step(on_own(), STOP, exited(Reason.CANCELLED), ended())
    job, attempt = step.world.job, step.world.attempts[0]
    assert (attempt.reason, attempt.detail) == (Reason.STOPPED, "another job needs its machine")
    assert (job.state, job.used, job.not_before) == (JobState.QUEUED, {}, NOW)
    assert wanted(step.effects) == [("terminate", "mch-of-att-1")]


def test_no_number_of_stops_uses_up_a_budget() -> None:
    world = new_world(NONE)
    for number in range(1, 40):
        here = run(placed(world), started(f"att-{number}"), f.StopAttempt(f"att-{number}", "again"))
        world = finish(here, Reason.CANCELLED).world
    assert (world.job.state, world.job.used) == (JobState.QUEUED, {})


@pytest.mark.parametrize("make", [launching, placed, staging, running, on_own])
def test_asking_twice_is_asking_once(make: Callable[[], World]) -> None:
    once = run(make(), STOP)
    assert run_step(once, STOP, f.StopAttempt("att-1", "another reason"), now=NOW + 9).world == once


@pytest.mark.parametrize("make", [new_world, saving])
def test_without_a_program_to_stop_nothing_happens(make: Callable[[], World]) -> None:
    assert run(make(), STOP) == make()


def test_an_earlier_attempt_cannot_be_stopped() -> None:
    world = run(placed(finish(running(), Reason.RUNNER_LOST).world), STOP)
    assert live(world).stopping_since is None


def test_a_program_that_completed_by_itself_has_completed() -> None:
    world = run(running(), STOP, exited(Reason.COMPLETED, code=0), ended())
    assert (world.job.state, world.attempts[0].detail) == (JobState.COMPLETED, "")


def test_a_cancel_meanwhile_still_cancels() -> None:
    world = run(running(), STOP, f.CancelRequested(), exited(Reason.CANCELLED), ended())
    assert (world.job.state, world.attempts[0].reason) == (JobState.CANCELLED, Reason.CANCELLED)


def test_a_cancelled_job_is_not_stopped_as_well() -> None:
    cancelled = run(running(), f.CancelRequested())
    assert run(cancelled, STOP) == cancelled


def test_a_machine_lost_meanwhile_does_not_charge_it() -> None:
    world = with_machine_gone(run(on_own(), STOP), "mch-of-att-1", now=NOW + 1)
    step = run_step(world, f.Tick(), now=NOW + 1 + SETTLE_WINDOW)
    assert (step.world.attempts[0].reason, step.world.job.state) == (Reason.STOPPED, JobState.QUEUED)


def test_where_nothing_was_prepared_the_machine_is_released_and_awaited() -> None:
    step = run_step(launching(new_world(NONE)), STOP)
    assert wanted(step.effects) == [("terminate", "mch-of-att-1")]
    assert live(step.world).state is AttemptState.LAUNCHING, "its launch may still have made a machine"
    gone = advance_by(step.world.machines["mch-of-att-1"], f.LaunchRefused("cancelled before it was launched"))
    after = run(step.world.with_machine(gone), f.Tick())
    assert (after.attempts[0].reason, after.job.state) == (Reason.STOPPED, JobState.QUEUED)


def test_on_a_shared_machine_that_nobody_claimed_it_ends_at_once() -> None:
    world = new_world()
    step = run_step(run(world, placed_on(world, pool_machine(MachineState.INTENDED), new=True)), STOP)
    assert (step.world.job.state, step.effects) == (JobState.QUEUED, ())


def test_one_that_does_not_stop_loses_its_machine() -> None:
    world = run(on_own(), STOP)
    grace = world.job.spec.grace_seconds
    heard = NOW + grace + STOP_SECONDS - 1
    assert wanted(run_step(run(world, f.RunnerContacted("att-1"), now=heard), f.Tick(), now=heard).effects) == []
    late = run_step(run(world, f.RunnerContacted("att-1"), now=heard), f.Tick(), now=heard + 1)
    assert wanted(late.effects) == [("terminate", "mch-of-att-1")]


def test_a_silent_one_loses_it_earlier() -> None:
    world = run(on_own(), STOP)
    silent = NOW + NOTICE_AFTER + world.job.spec.grace_seconds
    assert wanted(run_step(world, f.Tick(), now=silent - 1).effects) == []
    assert wanted(run_step(world, f.Tick(), now=silent).effects) == [("terminate", "mch-of-att-1")]


def test_one_that_was_silent_before_is_still_given_time_to_stop() -> None:
    quiet = replace(live(on_own()), last_seen=NOW - 5000)
    step = run_step(on_own().with_attempt(quiet), STOP, f.Tick())
    assert wanted(step.effects) == []


def test_the_next_attempt_is_not_stopped() -> None:
    world = run(running(), STOP, exited(Reason.CANCELLED), ended())
    assert live(placed(world)).stopping_since is None
