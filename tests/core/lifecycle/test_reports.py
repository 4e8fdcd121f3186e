"""Reports that come late, twice or from someone else."""

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
    new_world,
    placed,
    placed_on,
    pool_machine,
    run,
    running,
    saving,
    staging,
    started,
)

from crucible.core.lifecycle import AttemptState, Fact, JobState, Reason, World, advance
from crucible.core.lifecycle import facts as f


def reports(attempt: str) -> list[Fact]:
    return [
        f.RunnerStaging(attempt, "the environment"),
        f.RunnerStarted(attempt, 0, 7),
        f.RunnerExited(attempt, 0, Reason.EXIT_CODE, 1),
        f.RunnerEnded(attempt, 0),
        f.RunnerContacted(attempt),
    ]


FACTS: list[Fact] = [
    *reports("att-1"),
    f.Planned(),
    f.Waits("for a GPU"),
    f.NothingSaved(),
    f.StopAttempt("att-1", "another job needs its machine"),
    f.CancelRequested(),
    f.Tick(),
    placed_on(new_world(), pool_machine(id="mch-2"), new=True),
]
EVERYWHERE = [new_world, launching, placed, staging, running, saving]


def completed() -> World:
    return finish(running(), Reason.COMPLETED, 0).world


def failed() -> World:
    return finish(running(), Reason.OUT_OF_MEMORY).world


def cancelled() -> World:
    return run(new_world(), f.CancelRequested())


@pytest.mark.parametrize("make", [completed, failed, cancelled])
@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_a_terminal_job_never_changes(make: Callable[[], World], fact: Fact) -> None:
    world = make()
    step = advance(world, fact, NOW + 1000)
    assert (step.world, step.events, step.effects, step.touched) == (world, (), (), frozenset())


@pytest.mark.parametrize("make", EVERYWHERE)
@pytest.mark.parametrize("fact", reports("att-of-another-job"), ids=lambda fact: type(fact).__name__)
def test_a_report_on_another_attempt_changes_nothing(make: Callable[[], World], fact: Fact) -> None:
    world = make()
    step = advance(world, fact, NOW)
    assert (step.world, step.events, step.effects) == (world, (), ())


@pytest.mark.parametrize("fact", reports("att-1"), ids=lambda fact: type(fact).__name__)
def test_a_report_on_the_attempt_before_changes_nothing(fact: Fact) -> None:
    world = running(finish(running(), Reason.RUNNER_LOST).world)
    step = advance(world, fact, NOW)
    assert (step.world, step.events, step.effects) == (world, (), ())


@pytest.mark.parametrize("make", [placed, staging, running])
@pytest.mark.parametrize("fact", reports("att-1"), ids=lambda fact: type(fact).__name__)
def test_a_report_that_comes_twice_counts_once(make: Callable[[], World], fact: Fact) -> None:
    once = advance(make(), fact, NOW).world
    again = advance(once, fact, NOW)
    assert (again.world, again.effects) == (once, ())
    assert again.events == () or isinstance(fact, f.RunnerStaging)


def test_staging_and_started_do_not_take_a_later_state_back() -> None:
    world = saving()
    assert live(run(world, f.RunnerStaging("att-1", "x"), started())).state is AttemptState.SAVING
    assert live(run(running(), f.RunnerStaging("att-1", "x"))).state is AttemptState.RUNNING


def test_the_first_exit_report_decides() -> None:
    world = run(running(), exited(Reason.EXIT_CODE, code=3), exited(Reason.COMPLETED, code=0), ended())
    assert (world.job.reason, world.job.exit_code) == (Reason.EXIT_CODE, 3)


def test_reports_in_the_wrong_order_still_end_the_attempt_once() -> None:
    world = run(placed(), ended(), exited(Reason.COMPLETED, code=0), started())
    assert world.attempts[0].reason is Reason.RUNNER_LOST
    assert world.job.state is JobState.QUEUED


@pytest.mark.parametrize("make", [launching, placed, staging, running, saving])
def test_planning_and_scheduling_of_a_job_under_way_change_nothing(make: Callable[[], World]) -> None:
    world = make()
    for fact in (f.Planned(), f.Waits("for a GPU"), f.NothingSaved()):
        assert advance(world, fact, NOW).world == world


def test_a_placement_of_another_job_or_an_older_wish_changes_nothing() -> None:
    world = new_world()
    fact = placed_on(world, pool_machine())
    for attempt in (replace(fact.attempt, job="job-2"), replace(fact.attempt, generation=0)):
        assert advance(world, replace(fact, attempt=attempt), NOW).world == world
