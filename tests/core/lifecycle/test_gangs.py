"""Attempts on several machines: placed together, released together, and ended once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.lifecycle.builders import (
    NOW,
    advance_by,
    live,
    new_world,
    next_attempt,
    own_machine,
    run,
    run_step,
    types,
    wanted,
)

from crucible.core.job.spec import Retries
from crucible.core.lifecycle import AttemptState, JobState, MachineState, Reason, World
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.reasons import Retry
from crucible.core.lifecycle.silence import SETTLE_WINDOW, STOP_SECONDS

NAMES = ("mch-0", "mch-1", "mch-2")
BUDGETS = Retries(interruption=5, infrastructure=5, user=5)
TERMINATED = [("terminate", name) for name in NAMES]
GONE = (f.SeenGone(detail="the provider says so"), f.SeenGone(detail="the provider says so"))


def placed(state: MachineState = MachineState.INTENDED) -> World:
    world = new_world(BUDGETS)
    machines = tuple(
        replace(own_machine("att-1", state), id=name, host_due=NOW + 600, ends_at=NOW + 9000) for name in NAMES
    )
    return run(world, f.Placed(next_attempt(world, *machines), machines, "together", frozenset(NAMES)))


def running() -> World:
    return run(placed(MachineState.UP), *(f.RunnerStarted("att-1", rank, 7) for rank in range(3)))


def see(world: World, machine: str, *facts: f.MachineFact, now: float = NOW) -> World:
    return world.with_machine(advance_by(world.machines[machine], *facts, now=now))


def ends(rank: int, reason: Reason, code: int = 1) -> tuple[f.RunnerExited, f.RunnerEnded]:
    return f.RunnerExited("att-1", rank, reason, code), f.RunnerEnded("att-1", rank)


def test_it_starts_once_every_machine_is_up() -> None:
    some = see(see(placed(), "mch-0", f.HostSeen()), "mch-1", f.HostSeen())
    assert run(some, f.Tick()).job.state is JobState.PROVISIONING
    assert run(see(some, "mch-2", f.HostSeen()), f.Tick()).job.state is JobState.STARTING


def test_it_completes_when_all_ranks_have() -> None:
    world = run(running(), *ends(1, Reason.COMPLETED, 0), *ends(0, Reason.COMPLETED, 0))
    assert (live(world).state, live(world).reason) == (AttemptState.RUNNING, None)
    step = run_step(world, f.RunnerExited("att-1", 2, Reason.COMPLETED, 0))
    assert (live(step.world).state, types(step.events)) == (AttemptState.SAVING, ["exited"])
    done = run_step(step.world, f.RunnerEnded("att-1", 2))
    assert (done.world.job.state, done.world.job.exit_code) == (JobState.COMPLETED, 0)
    assert wanted(done.effects) == TERMINATED


def test_a_rank_that_fails_stops_the_others_and_its_reason_counts() -> None:
    step = run_step(running(), f.RunnerExited("att-1", 1, Reason.OUT_OF_MEMORY, -9))
    assert types(step.events) == ["exited", "stopping"]
    assert (step.touched, step.effects) == (frozenset(NAMES), ())
    others = run_step(step.world, f.RunnerEnded("att-1", 1), *ends(0, Reason.CANCELLED), *ends(2, Reason.EXIT_CODE, 3))
    job = others.world.job
    assert (job.state, job.reason, job.exit_code) == (JobState.FAILED, Reason.OUT_OF_MEMORY, -9)
    assert types(others.events) == ["attempt_ended", "failed"]


def test_a_rank_that_completed_does_not_save_a_gang_that_failed() -> None:
    world = run(running(), *ends(0, Reason.COMPLETED, 0), *ends(1, Reason.EXIT_CODE), *ends(2, Reason.CANCELLED))
    assert (world.attempts[0].reason, world.job.used) == (Reason.EXIT_CODE, {Retry.USER: 1})


def test_a_rank_whose_runner_was_lost_stops_the_others() -> None:
    step = run_step(running(), f.RunnerEnded("att-1", 2))
    assert (types(step.events), live(step.world).reason) == (["stopping"], Reason.RUNNER_LOST)


def test_others_that_do_not_stop_lose_their_machines() -> None:
    failed = run(running(), *ends(1, Reason.EXIT_CODE))
    late = NOW + failed.job.spec.grace_seconds + STOP_SECONDS
    assert wanted(run_step(failed, f.Tick(), now=late).effects) == TERMINATED


@pytest.mark.parametrize(
    ("fact", "reason", "retry"),
    [
        ((f.LaunchRefused("no room"),), Reason.REFUSED, Retry.REFUSAL),
        ((f.LaunchAnswered("i-1"), *GONE), Reason.NOT_BEGUN, Retry.UNBEGUN),
        ((f.LaunchAnswered("i-1"), f.SeenGone(True), f.SeenGone(True)), Reason.INTERRUPTED, Retry.INTERRUPTION),
    ],
    ids=["refused", "lost", "taken back"],
)
def test_if_one_machine_does_not_come_all_are_released_and_it_is_counted_once(
    fact: tuple[f.MachineFact, ...], reason: Reason, retry: Retry
) -> None:
    some = run(see(placed(), "mch-0", f.HostClaimed("i-0"), f.HostSeen()), f.RunnerContacted("att-1"))
    step = run_step(see(some, "mch-2", *fact), f.Tick(), now=NOW + SETTLE_WINDOW)
    assert wanted(step.effects) == TERMINATED[:2]
    assert live(step.world).reason is reason
    world = see(step.world, "mch-1", f.LaunchRefused("cancelled before it was launched"))
    half = run(world, f.Tick(), now=NOW + 60)
    assert half.live is not None, "its host on the first machine may still run"
    over = run_step(see(half, "mch-0", *GONE, now=NOW + 70), f.Tick(), now=NOW + 80)
    assert (over.world.attempts[0].reason, over.world.job.state) == (reason, JobState.QUEUED)
    assert over.world.job.used == {retry: 1}
    assert types(over.events) == ["attempt_ended", "retrying"]


def test_if_one_host_is_late_all_are_released() -> None:
    some = see(see(placed(), "mch-0", f.HostSeen()), "mch-1", f.HostSeen())
    step = run_step(some, f.Tick(), now=NOW + 600)
    assert (wanted(step.effects), live(step.world).reason) == (TERMINATED, Reason.NOT_BEGUN)
    assert wanted(run_step(step.world, f.Tick(), now=NOW + 700).effects) == []


def test_a_machine_lost_while_it_runs_stops_the_other_ranks() -> None:
    lost = see(running(), "mch-1", *GONE)
    step = run_step(lost, f.Tick(), now=NOW + SETTLE_WINDOW)
    assert (types(step.events), step.effects) == (["stopping"], ())
    assert live(step.world).reason is Reason.MACHINE_LOST
    over = run(step.world, *ends(0, Reason.CANCELLED), *ends(2, Reason.CANCELLED))
    assert (over.attempts[0].reason, over.job.used) == (Reason.MACHINE_LOST, {Retry.INFRASTRUCTURE: 1})


def test_a_machine_lost_after_its_rank_completed_stops_nobody() -> None:
    done = run(running(), f.RunnerExited("att-1", 1, Reason.COMPLETED, 0))
    step = run_step(see(done, "mch-1", *GONE), f.Tick(), now=NOW + SETTLE_WINDOW)
    assert types(step.events) == []
    assert run(step.world, *ends(0, Reason.COMPLETED, 0), *ends(2, Reason.COMPLETED, 0)).job.state is JobState.COMPLETED


def test_a_cancel_ends_every_rank_and_the_job_once() -> None:
    step = run_step(run(running(), f.CancelRequested()), *(r for n in range(3) for r in ends(n, Reason.CANCELLED)))
    assert step.world.job.state is JobState.CANCELLED
    assert types(step.events) == ["exited", "attempt_ended", "cancelled"]


def test_it_can_be_stopped_without_its_job() -> None:
    stopped = run(
        running(), f.StopAttempt("att-1", "it moves"), *(r for n in range(3) for r in ends(n, Reason.CANCELLED))
    )
    assert (stopped.attempts[0].reason, stopped.job.state, stopped.job.used) == (Reason.STOPPED, JobState.QUEUED, {})


def test_reports_of_a_rank_count_once_and_those_of_no_rank_not_at_all() -> None:
    world = run(running(), *ends(0, Reason.COMPLETED, 0))
    assert run(world, *ends(0, Reason.EXIT_CODE), *ends(7, Reason.EXIT_CODE)).attempts == world.attempts


def test_all_that_wait_at_their_provider_are_withdrawn_together() -> None:
    world = new_world(BUDGETS, max_wait_seconds=60.0)
    machines = tuple(
        replace(own_machine("att-1"), id=name, gang="mch-0", started_at=None, host_seconds=600.0) for name in NAMES
    )
    world = run(world, f.Placed(next_attempt(world, *machines), machines, "together", frozenset(NAMES)))
    for name in NAMES:
        world = see(world, name, f.LaunchAnswered(f"i-{name}"), f.SeenQueued("busy"))
    step = run_step(world, f.Tick(has_alternative=True), now=NOW + 60)
    assert wanted(step.effects) == [("withdraw", name) for name in NAMES]
    some = step.world
    for name in NAMES[:2]:
        some = see(some, name, f.Withdrawn(), *GONE, now=NOW + 61)
    over = run_step(see(some, "mch-2", f.AlreadyStarted(), now=NOW + 62), f.Tick(), now=NOW + 62)
    assert wanted(over.effects) == [("terminate", "mch-2")], "a part of a gang is of no use"
    assert live(over.world).reason is Reason.WITHDRAWN
