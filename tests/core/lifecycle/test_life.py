"""The normal life of a job, and what each fact means on the way."""

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
    next_attempt,
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
)

from crucible.core.job.states import states_of
from crucible.core.lifecycle import (
    AttemptState,
    DesiredState,
    JobState,
    MachineState,
    Reason,
    Status,
    World,
    advance,
    status_of,
)
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.advance import new_job
from crucible.core.lifecycle.silence import NOTICE_AFTER


def test_a_new_job_is_accepted_and_queued() -> None:
    step = new_job(new_world().job)
    assert types(step.events) == ["submitted"]
    assert new_world().job.state is JobState.QUEUED
    assert new_world().job.due_at is None


def test_from_queue_to_completed() -> None:
    world = new_world()
    step = run_step(
        world,
        placed_on(world, pool_machine()),
        f.RunnerStaging("att-1", "the environment"),
        started(),
        exited(Reason.COMPLETED, code=0),
        ended(),
    )
    job = step.world.job
    assert types(step.events) == ["placed", "staging", "started", "exited", "attempt_ended", "completed"]
    assert (job.state, job.reason, job.exit_code, job.attempts) == (
        JobState.COMPLETED,
        Reason.COMPLETED,
        0,
        1,
    )
    assert (job.started_at, job.ended_at, job.due_at, job.waiting) == (NOW, NOW, None, "")
    assert step.effects == ()
    assert step.touched == {"mch-pool"}
    assert step.world.attempts[0].state is AttemptState.ENDED


@pytest.mark.parametrize(
    ("make", "phase", "status"),
    [
        (new_world, JobState.QUEUED, Status.QUEUED),
        (launching, JobState.PROVISIONING, Status.QUEUED),
        (placed, JobState.STARTING, Status.RUNNING),
        (staging, JobState.STARTING, Status.RUNNING),
        (running, JobState.RUNNING, Status.RUNNING),
        (saving, JobState.RUNNING, Status.RUNNING),
    ],
)
def test_the_phase_follows_from_the_attempt_and_its_machine(
    make: Callable[[], World], phase: JobState, status: Status
) -> None:
    world = make()
    assert world.job.state is phase
    assert status_of(world.job.state) is status


def test_statuses_and_states_project_onto_each_other() -> None:
    assert {state for status in Status for state in states_of(status)} == set(JobState)
    assert all(status_of(state) is status for status in Status for state in states_of(status))
    assert {s for s in JobState if s.terminal} == {JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED}


def test_a_new_machine_is_launched_and_an_existing_one_is_told() -> None:
    world = new_world()
    fresh = advance(world, placed_on(world, own_machine("att-1"), new=True), NOW)
    assert wanted(fresh.effects) == [("launch", "mch-of-att-1")]
    assert live(fresh.world).state is AttemptState.LAUNCHING
    there = advance(world, placed_on(world, pool_machine()), NOW)
    assert (there.effects, there.touched) == ((), frozenset({"mch-pool"}))
    assert live(there.world).state is AttemptState.PLACED


def test_the_machines_of_a_gang_are_placed_together_and_launched_once_each() -> None:
    world = new_world()
    machines = [replace(own_machine("att-1"), id=f"mch-{n}") for n in range(3)]
    together = f.Placed(next_attempt(world, *machines), tuple(machines), "together", frozenset({"mch-0", "mch-1"}))
    step = advance(world, together, NOW)
    assert wanted(step.effects) == [("launch", "mch-0"), ("launch", "mch-1")], "the third is there already"
    assert set(step.world.machines) == step.touched == {"mch-0", "mch-1", "mch-2"}
    (event,) = step.events
    assert (event.data["machine"], event.data["machines"]) == ("mch-0", ["mch-0", "mch-1", "mch-2"])


def test_a_gang_that_one_call_makes_is_launched_by_its_first_machine() -> None:
    world = new_world()
    machines = tuple(replace(own_machine("att-1"), id=f"mch-{n}", gang="mch-0") for n in range(3))
    together = f.Placed(next_attempt(world, *machines), machines, "together", frozenset(m.id for m in machines))
    assert wanted(advance(world, together, NOW).effects) == [("launch", "mch-0")]


def test_a_gang_is_not_placed_if_one_of_its_machines_is_on_its_way_out() -> None:
    world = new_world()
    machines = (pool_machine(id="mch-a"), pool_machine(MachineState.RELEASING, id="mch-b"))
    together = f.Placed(next_attempt(world, *machines), machines, "together")
    assert advance(world, together, NOW).world == world


def test_provisioning_becomes_starting_once_the_machine_is_up() -> None:
    world = launching()
    up = world.with_machine(own_machine("att-1", MachineState.UP))
    assert run(up, f.Tick()).job.state is JobState.STARTING


def test_why_it_waits_is_kept_until_it_is_placed() -> None:
    step = run_step(new_world(), f.Waits("waits for 2 GPUs"))
    assert (step.world.job.waiting, step.events) == ("waits for 2 GPUs", ())
    assert advance(step.world, f.Waits("waits for 2 GPUs"), NOW).world == step.world
    after = placed(step.world).job
    assert (after.waiting, after.placement) == ("", "it is free and it fits")


def test_the_first_start_is_the_start_of_the_job() -> None:
    first = finish(running(), Reason.RUNNER_LOST).world
    again = placed(first)
    later = run(again, started("att-2"), now=NOW + 500).job
    assert later.started_at == NOW


def test_a_program_may_end_before_it_was_seen_to_start() -> None:
    assert finish(placed(), Reason.COMPLETED, 0).world.job.state is JobState.COMPLETED
    assert finish(staging(), Reason.STAGING_FAILED).world.job.reason is Reason.STAGING_FAILED


def test_an_exit_is_not_the_end_until_the_outputs_are_in() -> None:
    world = saving()
    assert live(world).reason is Reason.COMPLETED
    assert world.job.state is JobState.RUNNING
    assert run(world, ended()).job.state is JobState.COMPLETED


def test_a_runner_that_ends_without_an_exit_report_is_lost() -> None:
    world = run(running(), ended())
    assert world.attempts[0].reason is Reason.RUNNER_LOST
    assert world.job.state is JobState.QUEUED


def test_the_last_words_become_the_detail() -> None:
    world = running()
    told = run(world, f.RunnerExited("att-1", 0, Reason.EXIT_CODE, 3, None, "ValueError: no"), ended())
    assert (told.job.detail, told.job.exit_code) == ("ValueError: no", 3)
    quiet = run(world, exited(Reason.COMPLETED, code=0), f.RunnerEnded("att-1", 0, False, "2 files are missing"))
    assert quiet.job.detail == "2 files are missing"


@pytest.mark.parametrize("state", [MachineState.RELEASING, MachineState.GONE])
def test_no_attempt_starts_on_a_machine_that_is_being_given_back(state: MachineState) -> None:
    world = new_world()
    step = advance(world, placed_on(world, pool_machine(state)), NOW)
    assert (step.world, step.events, step.effects) == (world, (), ())


def test_a_second_placement_changes_nothing() -> None:
    world = running()
    step = advance(world, placed_on(world, pool_machine(id="mch-2")), NOW)
    assert (step.world, step.events, step.effects) == (world, (), ())


def test_an_old_placement_that_comes_again_does_not_revive_its_attempt() -> None:
    queued = new_world()
    first = placed_on(queued, pool_machine())
    retried = finish(run(queued, first), Reason.RUNNER_LOST).world
    assert advance(retried, first, NOW).world == retried


def test_a_rank_counts_as_ended_once_its_runner_said_so() -> None:
    world = new_world()
    machines = (pool_machine(id="mch-a"), pool_machine(id="mch-b"))
    two = f.Placed(next_attempt(world, *machines), machines, "together")
    here = run(world.with_machine(machines[1]), two, started(), exited(Reason.COMPLETED, code=0))
    once = run(here, f.RunnerEnded("att-1", 0), f.RunnerEnded("att-1", 0))
    assert [slot.ended for slot in live(once).slots] == [True, False]
    both = run(once, f.RunnerExited("att-1", 1, Reason.COMPLETED, 0), f.RunnerEnded("att-1", 1))
    assert both.job.state is JobState.COMPLETED
    half = lose_machine(here)
    assert [slot.ended for slot in live(half.world).slots] == [True, False]
    assert (half.world.job.due_at or 0) >= NOW + NOTICE_AFTER


def test_a_placement_needs_a_wanted_job_without_a_live_attempt_even_in_a_broken_world() -> None:
    unwanted = new_world().with_job(desired=DesiredState.CANCEL)
    busy = running().with_job(state=JobState.QUEUED)
    for world in (unwanted, busy):
        step = advance(world, placed_on(world, pool_machine(id="mch-2"), new=True), NOW)
        assert len(step.world.attempts) == len(world.attempts)
        assert step.effects == ()
