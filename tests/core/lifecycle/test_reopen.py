from __future__ import annotations

import pytest
from tests.core.lifecycle.builders import NOW, finish, live, new_world, placed, run, run_step, running, types

from crucible.core.job.spec import Retries
from crucible.core.lifecycle import DesiredState, JobState, Reason, World
from crucible.core.lifecycle import facts as f

RESUME = f.ResumeRequested("ckp-1", "rehearsal")


def failed() -> World:
    return finish(running(new_world(Retries(infrastructure=1))), Reason.EXIT_CODE, 1).world


@pytest.mark.parametrize(
    "ended",
    [
        failed(),
        run(new_world(), f.CancelRequested()),
        finish(running(), Reason.COMPLETED, 0).world,
    ],
    ids=["failed", "cancelled", "completed"],
)
def test_an_ended_job_is_queued_again_as_it_was(ended: World) -> None:
    step = run_step(ended, RESUME, now=NOW + 10)
    job = step.world.job
    assert types(step.events) == ["reopened"]
    assert (job.state, job.desired, job.generation) == (JobState.QUEUED, DesiredState.RUN, ended.job.generation + 1)
    assert (job.resume_from, job.backend, job.attempts_before_reopen) == ("ckp-1", "rehearsal", ended.job.attempts)
    assert (job.reason, job.exit_code, job.ended_at, job.used) == (None, None, None, {})
    assert step.world.attempts == ended.attempts


def test_its_next_attempt_counts_on() -> None:
    again = placed(run(failed(), RESUME))
    assert (live(again).number, live(again).generation) == (2, 2)


def test_reports_of_the_attempt_before_change_nothing() -> None:
    again = run(failed(), RESUME)
    assert run_step(again, f.RunnerExited("att-1", 0, Reason.COMPLETED, 0), f.RunnerEnded("att-1", 0)).events == ()


@pytest.mark.parametrize("world", [new_world(), running()], ids=["queued", "running"])
def test_what_has_not_ended_is_not_reopened(world: World) -> None:
    step = run_step(world, RESUME)
    assert (step.events, step.world.job.generation) == ((), 1)


def test_without_a_wish_it_starts_at_the_head_of_its_line() -> None:
    job = run(failed(), f.ResumeRequested()).job
    assert (job.backend, job.resume_from) == ("local", None)
