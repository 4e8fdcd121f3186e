"""Reopen an ended job: queue it again under a new generation."""

from __future__ import annotations

from crucible.core.job.states import DesiredState, JobState
from crucible.core.lifecycle.facts import ResumeRequested
from crucible.core.lifecycle.values import Event, Step, World
from crucible.core.scheduling.candidates import list_candidates


def reopen(world: World, fact: ResumeRequested, now: float) -> Step:
    """Queue an ended job again. Its retry budgets start from zero, because a user decided to resume it."""
    job = world.job
    if not job.state.terminal or world.live is not None:
        return Step(world)
    candidates = list_candidates(job.spec, fact.backend)
    backend = candidates[0].backend
    again = world.with_job(
        state=JobState.QUEUED,
        desired=DesiredState.RUN,
        generation=job.generation + 1,
        reason=None,
        detail="",
        waiting="",
        used={},
        exit_code=None,
        signal=None,
        ended_at=None,
        not_before=now,
        backend=backend,
        candidates=candidates,
        resume_from=fact.resume_from,
        attempts_before_reopen=job.attempts,
    )
    data = {"by": fact.by, "from": fact.resume_from, "backend": backend, "was": job.state.value}
    return Step(again, (Event("reopened", data),))
