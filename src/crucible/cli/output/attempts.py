"""A job's tries in words: where each ran, why it ended, what it began from and what was lost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from crucible.core.views.jobs import AttemptView, CheckpointMark, JobView

_CONDITIONS = {
    "unreachable": "its machine does not answer; the job goes on, and its news will come",
    "still_billing": "a machine of it bills until it is gone; `crucible machines` shows it",
    "over_budget": "it costs more than its budget",
}


def attempt_place(attempt: AttemptView) -> str:
    """`rehearsal spot sim.large in simulated-east (simulated)`; of this computer its name is enough."""
    if attempt.backend == "local":
        return "local"
    parts = [
        attempt.backend or "",
        attempt.market if attempt.market and attempt.market != "on_demand" else "",
        attempt.instance_type or "",
        f"in {attempt.region}" if attempt.region else "",
        "(simulated)" if attempt.simulated else "",
    ]
    return " ".join(part for part in parts if part)


def resumed_words(checkpoint: CheckpointMark) -> str:
    """`resumed from step 600 (ckp-abc123, step_00000600.pt)`."""
    names = ", ".join(name for name in (checkpoint.short, checkpoint.name) if name)
    if checkpoint.step is None:
        return f"resumed from {names or checkpoint.id}"
    return f"resumed from step {checkpoint.step}" + (f" ({names})" if names else "")


def lost_steps(attempt: AttemptView, following: AttemptView | None) -> int | None:
    """Steps that have to be done again: what the server says, else from where it was to where the next began."""
    if attempt.steps_lost is not None:
        return attempt.steps_lost
    if following is None or attempt.progress is None or attempt.progress.step is None:
        return None
    begun = following.resume_from.step if following.resume_from else 0
    return None if begun is None else max(0, int(attempt.progress.step) - begun)


def attempt_lines(job: JobView) -> Iterator[str]:
    """One line a try, where there is more to say than that there is one."""
    if len(job.attempts) == 1 and job.attempts[0].resume_from is None:
        return
    for attempt, following in pairwise((*job.attempts, None)):
        assert attempt is not None
        yield f"{attempt.number}: " + "; ".join(part for part in _parts(attempt, following) if part)


def _parts(attempt: AttemptView, following: AttemptView | None) -> Iterator[str]:
    yield attempt_place(attempt)
    yield resumed_words(attempt.resume_from) if attempt.resume_from else ""
    yield ended_words(attempt) or attempt.state
    lost = lost_steps(attempt, following)
    yield f"{lost} steps lost" if lost else ""


def ended_words(attempt: AttemptView) -> str:
    """Why it ended; empty while it has not."""
    if not attempt.reason:
        return ""
    code = f" {attempt.exit_code}" if attempt.reason == "exit_code" and attempt.exit_code else ""
    detail = f" ({' '.join(attempt.detail.split())[:120]})" if attempt.detail else ""
    return f"{attempt.reason.replace('_', ' ')}{code}{detail}"


def condition_words(job: JobView) -> tuple[str, ...]:
    """What is so for now and worth to know, beside the status."""
    return tuple(_CONDITIONS.get(name, name.replace("_", " ")) for name in job.conditions)


def short_conditions(job: JobView) -> str:
    return ", ".join(name.replace("_", " ") for name in job.conditions)


def newest(job: JobView) -> AttemptView | None:
    return job.attempts[-1] if job.attempts else None
