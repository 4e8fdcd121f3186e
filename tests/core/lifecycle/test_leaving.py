"""Places that go away: notices, the end of a machine's time, fences, hosts that never come."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.lifecycle.builders import (
    JOB,
    NOW,
    exited,
    finish,
    launching,
    live,
    lose_machine,
    new_world,
    next_attempt,
    own_machine,
    placed_on,
    pool_machine,
    run,
    run_step,
    running,
    started,
    types,
    wanted,
    with_machine_gone,
)

from crucible.core.compute.resources import Resources
from crucible.core.job.spec import JobSpec, Retries
from crucible.core.lifecycle import AttemptState, Job, JobState, Machine, MachineState, Reason, World, advance_machine
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.advance import new_job
from crucible.core.lifecycle.reasons import Retry
from crucible.core.lifecycle.silence import HOST_GRACE, NOTICE_AFTER, REPLACE_MARGIN

LEASE = 6 * 3600.0
TWO_HOURS = 7200.0


def rented(**more: object) -> World:
    """A job that runs on a machine of its own, which bills."""
    world = new_job(Job(JOB, JobSpec(command=("true",), backend="cloud", fallback=("local",)), Resources(), NOW)).world
    world = world.with_job(backend="cloud")
    machine = replace(own_machine("att-1", MachineState.UP), **{"backend": "cloud", "lease_seconds": LEASE, **more})
    return run(world, placed_on(world, machine, new=True), started(), f.RunnerContacted("att-1"))


def machine_of(world: World) -> Machine:
    return world.machines[live(world).slots[0].machine]


def test_a_notice_is_told_once_and_stops_nothing_by_itself() -> None:
    step = run_step(rented(), f.InterruptionNoticed("att-1", 30), f.InterruptionNoticed("att-1", 20))
    assert types(step.events) == ["interruption_notice"]
    assert live(step.world).state is AttemptState.RUNNING
    assert step.effects == ()


def test_after_a_notice_lost_last_words_mean_interrupted() -> None:
    noticed = run(rented(), f.InterruptionNoticed("att-1", 5))
    assert lose_machine(noticed).world.attempts[0].reason is Reason.INTERRUPTED


def test_an_interrupted_job_is_queued_again_at_once() -> None:
    step = finish(rented(), Reason.INTERRUPTED)
    job = step.world.job
    assert (job.state, job.backend, job.used) == (JobState.QUEUED, "cloud", {Retry.INTERRUPTION: 1})
    assert job.not_before == NOW, "at once"
    assert wanted(step.effects) == [("terminate", "mch-of-att-1")]


def test_a_failure_of_the_program_stays_where_it_is() -> None:
    world = rented()
    patient = world.job.spec.model_copy(update={"retries": Retries(user=1)})
    assert finish(world.with_job(spec=patient), Reason.EXIT_CODE, 1).world.job.backend == "cloud"


def test_a_suspended_job_goes_on_at_the_same_place_and_is_not_charged() -> None:
    job = finish(rented(), Reason.SUSPENDED).world.job
    assert (job.state, job.backend, job.used) == (JobState.QUEUED, "cloud", {Retry.SUSPENSION: 1})


@pytest.mark.parametrize("silence", [5.0, 60.0, 600.0, TWO_HOURS])
def test_a_healthy_job_is_neither_killed_nor_restarted_by_silence(silence: float) -> None:
    step = run_step(rented(), f.Tick(), now=NOW + silence)
    assert live(step.world).id == "att-1"
    assert step.effects == ()
    assert types(step.events) == (["unreachable"] if silence >= NOTICE_AFTER else [])


def test_the_fence_holds_until_its_time_and_then_the_job_is_queued_again() -> None:
    world, fence = rented(), NOW + LEASE + REPLACE_MARGIN
    assert run_step(world, f.Tick(), now=fence - 1).effects == ()
    step = run_step(world, f.Tick(), now=fence)
    assert step.world.attempts[0].reason is Reason.FENCED
    assert (step.world.job.state, step.world.job.backend) == (JobState.QUEUED, "cloud")
    assert wanted(step.effects) == [("terminate", "mch-of-att-1")]


def test_where_nothing_bills_there_is_no_fence() -> None:
    step = run_step(rented(lease_seconds=None), f.Tick(), now=NOW + 30 * 24 * 3600)
    assert live(step.world).id == "att-1"


def test_a_word_of_its_runner_moves_the_fence() -> None:
    world = run(rented(), f.RunnerContacted("att-1"), now=NOW + LEASE)
    assert run_step(world, f.Tick(), now=NOW + LEASE + REPLACE_MARGIN).world.live is not None


def test_a_machine_is_released_when_its_time_is_over() -> None:
    world = rented(ends_at=NOW + 100)
    assert run_step(world, f.Tick(), now=NOW + 99).effects == ()
    step = run_step(world, f.Tick(), now=NOW + 100)
    assert wanted(step.effects) == [("terminate", "mch-of-att-1")]
    assert live(step.world).id == "att-1", "until its place says that it is gone"
    assert run_step(step.world, f.Tick(), now=NOW + 101).effects == ()


def test_the_job_is_looked_at_when_its_machines_time_is_over() -> None:
    world = run(rented(ends_at=NOW + 30), f.Tick())
    assert world.job.due_at is not None
    assert world.job.due_at <= NOW + 30


def test_a_host_that_does_not_come_costs_its_machine() -> None:
    due = NOW + 700
    world = launching()
    machine = replace(
        machine_of(world), host_due=due, state=MachineState.CREATING, native_id="i-1", launch_settled=True
    )
    world = world.with_machine(machine)
    assert run_step(world, f.Tick(), now=due - 1).effects == ()
    step = run_step(world, f.Tick(), now=due)
    assert wanted(step.effects) == [("terminate", "mch-of-att-1")]
    assert lose_machine(step.world, now=due).world.attempts[0].reason is Reason.NOT_BEGUN


def test_a_host_gets_its_chance_when_nobody_was_listening() -> None:
    due = NOW + 700
    world = launching()
    world = world.with_machine(replace(machine_of(world), host_due=due))
    assert run_step(world, f.Tick(listening_since=due), now=due + 1).effects == ()
    assert run_step(world, f.Tick(listening_since=due), now=due + HOST_GRACE).effects != ()


def test_a_launch_that_was_refused_is_tried_again_for_as_long_as_it_takes() -> None:
    world = launching(new_world(Retries(infrastructure=0)).with_job(used={Retry.REFUSAL: 500}))
    refused = advance_machine(machine_of(world), f.LaunchRefused("no room"), NOW).machine
    job = run(world.with_machine(refused), f.Tick()).job
    assert (job.state, job.used) == (JobState.QUEUED, {Retry.REFUSAL: 501})
    assert job.not_before == NOW, "the scheduler knows which kinds of offers refused it"


def test_once_it_runs_what_came_before_is_forgotten() -> None:
    world = launching(new_world().with_job(used={Retry.REFUSAL: 9, Retry.UNBEGUN: 9, Retry.USER: 0}))
    assert run(world, started()).job.used == {Retry.USER: 0}


def test_a_machine_that_reached_its_end_was_suspended() -> None:
    assert lose_machine(rented(ends_at=NOW + 30)).world.attempts[0].reason is Reason.SUSPENDED
    assert lose_machine(rented(ends_at=NOW + 3000)).world.attempts[0].reason is Reason.MACHINE_LOST


def test_a_job_that_saves_nothing_in_its_machines_time_ends() -> None:
    queued = finish(rented(), Reason.SUSPENDED).world
    job = run(queued, f.NothingSaved()).job
    assert (job.state, job.reason) == (JobState.FAILED, Reason.SUSPENDED)
    assert "checkpoint" in job.detail
    assert run_step(rented(), f.NothingSaved()).events == ()


def test_last_words_that_still_come_in_put_off_the_judgment() -> None:
    world = with_machine_gone(rented(), "mch-of-att-1")
    world = run(world, f.RunnerContacted("att-1"), now=NOW + 4)
    assert run(world, f.Tick(), now=NOW + 6).live is not None
    assert run(world, f.Tick(), now=NOW + 9).live is None


def test_a_cancelled_job_whose_agent_is_silent_costs_its_machine_at_once() -> None:
    world = run(rented(), f.CancelRequested())
    stopping = NOW + NOTICE_AFTER + world.job.spec.grace_seconds
    assert run_step(world, f.Tick(), now=stopping - 1).effects == ()
    step = run_step(world, f.Tick(), now=stopping)
    assert wanted(step.effects) == [("terminate", "mch-of-att-1")]
    assert live(step.world), "cancelled only when its machine is gone"
    assert lose_machine(step.world, now=stopping).world.job.state is JobState.CANCELLED


def test_a_shared_machine_stays_when_a_silent_job_is_cancelled() -> None:
    world = run(running(), f.RunnerContacted("att-1"), f.CancelRequested())
    assert run_step(world, f.Tick(), now=NOW + 3600).effects == ()


def test_a_job_that_starts_elsewhere_than_it_waited_for_says_why() -> None:
    world = new_world().with_job(backend="cloud")
    machine = pool_machine()
    placed = f.Placed(next_attempt(world, machine), (machine,), "it fits", passed_over="cloud: sold out")
    step = run_step(world, placed)
    assert types(step.events) == ["moved_on", "placed"]
    assert step.events[0].data == {"from": "cloud", "to": machine.backend, "why": "cloud: sold out"}
    assert step.world.job.backend == machine.backend


def test_a_checkpoint_is_asked_for_by_a_counter() -> None:
    step = run_step(rented(), f.CheckpointRequested(), f.CheckpointRequested())
    assert step.world.job.checkpoint == 2
    assert step.touched == {"mch-of-att-1"}
    assert run_step(run(rented(), exited(Reason.COMPLETED)), f.CheckpointRequested()).events == ()
