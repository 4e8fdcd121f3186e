"""Text about a job's attempts: where each ran, why it ended, where it resumed and what was lost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from crucible.core.job.spec import DEFAULT_BACKEND
from crucible.core.views.jobs import AttemptView, CheckpointMark, JobView

_CONDITIONS = {
    "unreachable": "machine unreachable; the job may still be running, updates will resume",
    "still_billing": "one of its machines is billed until it is gone; see `crucible machines`",
    "over_budget": "over budget",
}


def format_attempt_offer(attempt: AttemptView) -> str:
    """Return `aws spot g5.xlarge in us-east-1`, `ssh gpu1` for a host by its name, `local` for this computer."""
    if attempt.backend == DEFAULT_BACKEND:
        return DEFAULT_BACKEND
    parts = [
        attempt.backend or "",
        attempt.market if attempt.market and attempt.market != "on_demand" else "",
        attempt.instance_type or "",
        f"in {attempt.region}" if attempt.region and attempt.region != attempt.instance_type else "",
        "(simulated)" if attempt.simulated else "",
    ]
    return " ".join(part for part in parts if part)


def format_resume_point(checkpoint: CheckpointMark) -> str:
    """Return `resumed from step 600 (ckp-abc123, step_00000600.pt)`."""
    names = ", ".join(name for name in (checkpoint.short, checkpoint.name) if name)
    if checkpoint.step is None:
        return f"resumed from {names or checkpoint.id}"
    return f"resumed from step {checkpoint.step}" + (f" ({names})" if names else "")


def count_lost_steps(attempt: AttemptView, following: AttemptView | None) -> int | None:
    """Return the steps to repeat: the server's count, else from the last step to where the next attempt began."""
    if attempt.steps_lost is not None:
        return attempt.steps_lost
    if following is None or attempt.progress is None or attempt.progress.step is None:
        return None
    begun = following.resume_from.step if following.resume_from else 0
    return None if begun is None else max(0, int(attempt.progress.step) - begun)


def format_attempts(job: JobView) -> Iterator[str]:
    """Yield one line per attempt; nothing for a single attempt that started from scratch."""
    if len(job.attempts) == 1 and job.attempts[0].resume_from is None:
        return
    for attempt, following in pairwise((*job.attempts, None)):
        assert attempt is not None
        yield f"{attempt.number}: " + "; ".join(part for part in _parts(attempt, following) if part)


def _parts(attempt: AttemptView, following: AttemptView | None) -> Iterator[str]:
    yield format_attempt_offer(attempt)
    yield format_resume_point(attempt.resume_from) if attempt.resume_from else ""
    yield format_attempt_end(attempt) or attempt.state
    lost = count_lost_steps(attempt, following)
    yield f"{lost} steps lost" if lost else ""


def format_attempt_end(attempt: AttemptView) -> str:
    """Return why the attempt ended; empty while it runs."""
    if not attempt.reason:
        return ""
    code = f" {attempt.exit_code}" if attempt.reason == "exit_code" and attempt.exit_code else ""
    detail = f" ({' '.join(attempt.detail.split())[:120]})" if attempt.detail else ""
    return f"{attempt.reason.replace('_', ' ')}{code}{detail}"


def format_conditions(job: JobView) -> tuple[str, ...]:
    """Return the job's current conditions, such as an unreachable machine, as text."""
    return tuple(_CONDITIONS.get(name, name.replace("_", " ")) for name in job.conditions)


def short_conditions(job: JobView) -> str:
    return ", ".join(name.replace("_", " ") for name in job.conditions)


def newest_attempt(job: JobView) -> AttemptView | None:
    return job.attempts[-1] if job.attempts else None
