"""Machines that go away, and runners that fall silent."""

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
    placed,
    pool_machine,
    run,
    run_step,
    running,
    saving,
    staging,
    started,
    types,
    with_machine_gone,
)

from crucible.core.job.spec import Retries
from crucible.core.job.states import Condition
from crucible.core.lifecycle import AttemptState, JobState, MachineState, Reason, World, advance
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.silence import NOTICE_AFTER, SETTLE_WINDOW

TICK = f.Tick()
QUIET = NOW + NOTICE_AFTER


@pytest.mark.parametrize(
    ("make", "reason"),
    [(placed, Reason.NOT_BEGUN), (staging, Reason.MACHINE_LOST), (running, Reason.MACHINE_LOST)],
)
def test_a_lost_machine_is_judged_after_the_settle_window(make: Callable[[], World], reason: Reason) -> None:
    gone = with_machine_gone(make(), "mch-pool")
    early = run_step(gone, TICK, now=NOW + SETTLE_WINDOW - 0.1)
    assert early.events == ()
    assert early.world.job.due_at == NOW + SETTLE_WINDOW
    late = run_step(early.world, TICK, now=NOW + SETTLE_WINDOW)
    assert late.world.attempts[0].reason is reason
    assert all(slot.ended for slot in late.world.attempts[0].slots)
    assert late.world.attempts[0].detail == "the place says so"
    assert late.world.job.state is JobState.QUEUED


def test_a_report_that_arrives_within_the_settle_window_decides() -> None:
    gone = with_machine_gone(running(), "mch-pool")
    world = run(gone, exited(Reason.COMPLETED, code=0), ended(), now=NOW + 3)
    assert world.job.state is JobState.COMPLETED


def test_an_exit_report_decides_though_the_machine_went_away_before_the_end() -> None:
    assert lose_machine(saving()).world.job.state is JobState.COMPLETED


def test_a_machine_that_was_taken_back_is_an_interruption() -> None:
    world = lose_machine(running(), interrupted=True).world
    assert world.attempts[0].reason is Reason.INTERRUPTED
    assert world.job.not_before <= NOW + SETTLE_WINDOW


def test_too_many_interruptions_end_the_job() -> None:
    world = running(new_world(Retries(interruption=0)))
    assert lose_machine(world, interrupted=True).world.job.reason is Reason.INTERRUPTED


def test_a_report_after_the_machine_was_given_up_changes_nothing() -> None:
    world = lose_machine(running()).world
    assert run(world, exited(Reason.COMPLETED, code=0), ended()) == world


def test_a_word_that_was_only_noted_means_that_it_had_begun() -> None:
    world = placed()
    noted = world.with_attempt(replace(live(world), last_seen=NOW))
    assert lose_machine(noted).world.attempts[0].reason is Reason.MACHINE_LOST


def test_a_machine_that_was_taken_back_before_it_began_is_an_interruption() -> None:
    assert lose_machine(placed(), interrupted=True).world.attempts[0].reason is Reason.INTERRUPTED


def test_a_machine_that_never_came_up_is_a_failed_launch() -> None:
    shared = placed(machine=pool_machine(MachineState.CREATING))
    assert lose_machine(shared).world.attempts[0].reason is Reason.LAUNCH_FAILED
    assert lose_machine(launching()).world.attempts[0].reason is Reason.REFUSED


def test_silence_is_shown() -> None:
    world = run(running(), f.RunnerContacted("att-1"))
    early = run_step(world, TICK, now=QUIET - 0.1)
    assert early.events == ()
    step = run_step(world, TICK, now=QUIET)
    assert types(step.events) == ["unreachable"]
    assert step.world.job.conditions == {Condition.UNREACHABLE}


def test_silence_counts_from_when_somebody_listened() -> None:
    late = NOW + 10 * NOTICE_AFTER
    world = run(running(), f.Tick(late), now=late)
    assert world.job.conditions == frozenset()
    assert world.job.due_at is not None
    assert late < world.job.due_at <= late + NOTICE_AFTER
    assert run(world, f.Tick(late), now=late + NOTICE_AFTER - 0.1).job.conditions == frozenset()
    assert run(world, f.Tick(late), now=late + NOTICE_AFTER).job.conditions == {Condition.UNREACHABLE}


def test_listening_anew_is_no_sign_of_life() -> None:
    world = run(running(), TICK, now=QUIET)
    step = run_step(world, f.Tick(QUIET + 100), now=QUIET + 100)
    assert step.events == ()
    assert step.world.job.conditions == {Condition.UNREACHABLE}


def test_nothing_else_follows_from_silence() -> None:
    world = run(running(), TICK, now=QUIET)
    for hours in range(1, 100):
        step = run_step(world, TICK, now=QUIET + hours * 3600)
        assert (step.events, step.effects) == ((), ())
        assert step.world.job.state is JobState.RUNNING
        assert live(step.world).state is AttemptState.RUNNING
        world = step.world


def test_a_silent_job_is_looked_at_again_without_haste() -> None:
    world = run(running(), TICK, now=QUIET)
    assert world.job.due_at == QUIET + NOTICE_AFTER


@pytest.mark.parametrize("fact", [f.RunnerContacted("att-1"), f.RunnerStaging("att-1", "x"), started()])
def test_any_word_clears_it(fact: f.Fact) -> None:
    world = run(running(), TICK, now=QUIET)
    step = run_step(world, fact, now=QUIET + 100)
    assert types(step.events) == ["reachable"]
    assert step.world.job.conditions == frozenset()


def test_a_contact_that_was_only_noted_is_found_by_looking() -> None:
    world = run(running(), TICK, now=QUIET)
    noted = world.with_attempt(replace(live(world), last_seen=QUIET + 5))
    step = run_step(noted, TICK, now=QUIET + 6)
    assert types(step.events) == ["reachable"]
    assert step.world.job.due_at is not None


def test_a_silent_runner_that_never_spoke_is_not_called_unreachable() -> None:
    world = run(placed(), TICK, now=NOW + 1000)
    assert world.job.conditions == frozenset()


@pytest.mark.parametrize("reason", [Reason.COMPLETED, Reason.RUNNER_LOST])
def test_the_condition_ends_with_the_attempt(reason: Reason) -> None:
    world = run(running(), TICK, now=QUIET)
    assert finish(world, reason, now=QUIET + 1).world.job.conditions == frozenset()
    assert lose_machine(world, now=QUIET + 1).world.job.conditions == frozenset()


def test_a_chatty_job_keeps_its_due_time() -> None:
    world = running()
    due = world.job.due_at
    for second in range(1, int(NOTICE_AFTER) - 1):
        world = run(world, f.RunnerContacted("att-1"), now=NOW + second)
        assert world.job.due_at == due


def test_a_live_job_is_always_due_some_day_and_a_queued_one_is_not() -> None:
    for make in (placed, staging, running, saving):
        assert (make().job.due_at or 0) > NOW
    assert new_world().job.due_at is None
    assert lose_machine(running()).world.job.due_at is None


def test_ticks_around_a_job_without_an_attempt_do_nothing() -> None:
    world = new_world()
    assert advance(world, TICK, NOW + 1e6).world == world
