"""What each reason means: the outcome, who pays, whether and when it is tried again."""

from __future__ import annotations

import pytest
from tests.core.lifecycle.builders import (
    NOW,
    finish,
    launching,
    lose_machine,
    new_world,
    placed,
    pool_machine,
    run,
    running,
    types,
)

from crucible.core.job.spec import Retries
from crucible.core.lifecycle import JobState, MachineState, Reason, World
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.outcome import REFUSALS, SUSPENSIONS, UNBEGUN_TRIES
from crucible.core.lifecycle.reasons import Payer, Retry

NONE = Retries(interruption=0, infrastructure=0, user=0)
PLENTY = Retries(interruption=5, infrastructure=5, user=5)

VERDICTS = {
    Reason.COMPLETED: (JobState.COMPLETED, Retry.NEVER, Payer.USER),
    Reason.CANCELLED: (JobState.CANCELLED, Retry.NEVER, Payer.USER),
    Reason.EXIT_CODE: (JobState.FAILED, Retry.USER, Payer.USER),
    Reason.KILLED: (JobState.FAILED, Retry.USER, Payer.USER),
    Reason.OUT_OF_MEMORY: (JobState.FAILED, Retry.NEVER, Payer.USER),
    Reason.TIME_LIMIT: (JobState.FAILED, Retry.NEVER, Payer.USER),
    Reason.STAGING_FAILED: (JobState.FAILED, Retry.NEVER, Payer.USER),
    Reason.INTERRUPTED: (JobState.FAILED, Retry.INTERRUPTION, Payer.PLATFORM),
    Reason.SUSPENDED: (JobState.FAILED, Retry.SUSPENSION, Payer.USER),
    Reason.MACHINE_LOST: (JobState.FAILED, Retry.INFRASTRUCTURE, Payer.PLATFORM),
    Reason.NOT_BEGUN: (JobState.FAILED, Retry.UNBEGUN, Payer.PLATFORM),
    Reason.REFUSED: (JobState.FAILED, Retry.REFUSAL, Payer.PLATFORM),
    Reason.RUNNER_LOST: (JobState.FAILED, Retry.INFRASTRUCTURE, Payer.PLATFORM),
    Reason.LAUNCH_FAILED: (JobState.FAILED, Retry.INFRASTRUCTURE, Payer.PLATFORM),
    Reason.FENCED: (JobState.FAILED, Retry.INFRASTRUCTURE, Payer.PLATFORM),
    Reason.WITHDRAWN: (JobState.FAILED, Retry.FREE, Payer.PLATFORM),
    Reason.STOPPED: (JobState.FAILED, Retry.FREE, Payer.PLATFORM),
}
SPENT = {Retry.UNBEGUN: UNBEGUN_TRIES, Retry.REFUSAL: REFUSALS, Retry.SUSPENSION: SUSPENSIONS}
REPORTED = [reason for reason in Reason if reason is not Reason.CANCELLED and reason.policy.retry is not Retry.FREE]


def begun(world: World, reason: Reason) -> World:
    """As far as an attempt that ends for this reason comes."""
    return placed(world) if reason in (Reason.NOT_BEGUN, Reason.REFUSED) else running(world)


def test_every_reason_has_a_verdict() -> None:
    assert {r: (r.policy.outcome, r.policy.retry, r.policy.payer) for r in Reason} == VERDICTS


@pytest.mark.parametrize("reason", Reason)
def test_every_verdict_speaks_in_a_sentence(reason: Reason) -> None:
    assert reason.policy.message[0].isupper()
    assert reason.policy.message.endswith(".")
    assert reason.policy.advice.format(job="job-abc123") is not None


@pytest.mark.parametrize("reason", REPORTED)
def test_without_a_budget_each_reason_ends_the_job_with_its_outcome(reason: Reason) -> None:
    world = new_world(NONE).with_job(used=SPENT)
    step = finish(begun(world, reason), reason, 7)
    job = step.world.job
    assert (job.state, job.reason, job.exit_code) == (reason.policy.outcome, reason, 7)
    assert types(step.events)[-2:] == ["attempt_ended", reason.policy.outcome.value]


@pytest.mark.parametrize("reason", REPORTED)
def test_with_a_budget_only_what_may_be_tried_again_is(reason: Reason) -> None:
    step = finish(running(new_world(PLENTY)), reason)
    retry = reason.policy.retry
    assert step.world.job.state.terminal == (retry is Retry.NEVER)
    if retry is not Retry.NEVER:
        assert step.world.job.used == {retry: 1}
        assert types(step.events)[-1] == "retrying"
        assert step.world.job.waiting.startswith("attempt 2 starts ")
        assert step.world.job.waiting.endswith(reason.policy.message)


def test_running_out_of_memory_is_never_tried_again() -> None:
    assert finish(running(new_world(PLENTY)), Reason.OUT_OF_MEMORY).world.job.state is JobState.FAILED


def tries_until_the_end(world: World, reason: Reason) -> int:
    while not world.job.state.terminal:
        world = finish(begun(world, reason), reason).world
    return world.job.attempts


@pytest.mark.parametrize(
    ("reason", "tries"),
    [
        (Reason.INTERRUPTED, 4),
        (Reason.MACHINE_LOST, 3),
        (Reason.RUNNER_LOST, 3),
        (Reason.FENCED, 3),
        (Reason.EXIT_CODE, 2),
        (Reason.KILLED, 2),
        (Reason.TIME_LIMIT, 1),
        (Reason.NOT_BEGUN, 1 + UNBEGUN_TRIES),
    ],
)
def test_each_budget_gives_that_many_more_tries(reason: Reason, tries: int) -> None:
    world = new_world(Retries(interruption=3, infrastructure=2, user=1))
    assert tries_until_the_end(world, reason) == tries


def test_budgets_are_separate() -> None:
    world = new_world(Retries(interruption=1, infrastructure=1, user=1))
    for reason in (Reason.INTERRUPTED, Reason.RUNNER_LOST, Reason.EXIT_CODE):
        world = finish(begun(world, reason), reason).world
        assert world.job.state is JobState.QUEUED
    assert world.job.used == {Retry.INTERRUPTION: 1, Retry.INFRASTRUCTURE: 1, Retry.USER: 1}
    assert finish(running(world), Reason.KILLED).world.job.reason is Reason.KILLED


def waits(reason: Reason, retries: Retries, count: int) -> list[float]:
    world, found = new_world(retries), list[float]()
    for _ in range(count):
        world = finish(begun(world, reason), reason).world
        found.append(world.job.not_before - NOW)
    return found


def test_an_interrupted_job_is_queued_again_at_once() -> None:
    assert waits(Reason.INTERRUPTED, PLENTY, 3) == [0, 0, 0]


def test_after_trouble_of_ours_the_wait_doubles_up_to_the_jobs_own() -> None:
    assert waits(Reason.RUNNER_LOST, Retries(infrastructure=9, wait_seconds=10), 5) == [2, 4, 8, 10, 10]
    worn = new_world(Retries(infrastructure=1000)).with_job(used={Retry.INFRASTRUCTURE: 999})
    assert finish(running(worn), Reason.RUNNER_LOST).world.job.not_before == NOW + 60


@pytest.mark.parametrize("reason", [Reason.NOT_BEGUN, Reason.REFUSED, Reason.WITHDRAWN, Reason.STOPPED])
def test_what_never_began_or_was_stopped_by_us_is_queued_again_at_once(reason: Reason) -> None:
    assert waits(reason, Retries(infrastructure=0, wait_seconds=10), 5) == [0] * 5


def test_what_never_began_charges_no_budget_of_the_user() -> None:
    world = lose_machine(placed(new_world(NONE))).world
    assert (world.job.state, world.attempts[0].reason) == (JobState.QUEUED, Reason.NOT_BEGUN)
    assert world.job.used == {Retry.UNBEGUN: 1}


def test_a_place_that_keeps_vanishing_has_an_end() -> None:
    world = new_world(NONE)
    while not world.job.state.terminal:
        world = lose_machine(placed(world)).world
    assert (world.job.attempts, world.job.reason) == (1 + UNBEGUN_TRIES, Reason.NOT_BEGUN)


def test_after_an_error_of_the_program_the_wait_is_the_jobs_own() -> None:
    assert waits(Reason.EXIT_CODE, Retries(user=3, wait_seconds=30), 3) == [30, 30, 30]


def test_a_retry_is_a_new_attempt_that_leaves_the_old_one_as_it_was() -> None:
    first = finish(running(), Reason.RUNNER_LOST).world
    second = placed(first)
    assert [a.number for a in second.attempts] == [1, 2]
    assert second.attempts[0] == first.attempts[0]
    assert second.job.attempts == 2


def test_a_job_may_complete_on_its_second_try() -> None:
    world = running(finish(running(), Reason.INTERRUPTED).world)
    job = finish(world, Reason.COMPLETED, 0).world.job
    assert (job.state, job.reason, job.exit_code) == (JobState.COMPLETED, Reason.COMPLETED, 0)


def test_a_machine_of_its_own_is_given_back_with_every_try() -> None:
    world = run(launching(), f.RunnerStarted("att-1", 0, 1))
    step = finish(world, Reason.RUNNER_LOST)
    assert [(e.kind.value, e.machine) for e in step.effects] == [("terminate", "mch-of-att-1")]


def test_a_machine_that_could_not_be_started_counts_as_ours() -> None:
    step = lose_machine(placed(new_world(NONE), pool_machine(MachineState.CREATING)))
    assert step.world.job.reason is Reason.LAUNCH_FAILED
    assert step.effects == ()


def test_a_machine_of_its_own_that_never_came_is_not_charged() -> None:
    job = lose_machine(launching(new_world(NONE))).world.job
    assert (job.state, job.used) == (JobState.QUEUED, {Retry.REFUSAL: 1})
