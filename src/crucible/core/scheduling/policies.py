"""Policies: in which order the waiting jobs get their turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crucible.core.scheduling.state import WaitingJob

Policy = Callable[[Sequence[WaitingJob]], list[WaitingJob]]


def fifo(queue: Sequence[WaitingJob]) -> list[WaitingJob]:
    """Return the queue in order of arrival, with each user's turns reassigned to their jobs by priority.

    Only jobs of one user trade turns, across projects: the turns of other users do not change.
    """
    own: dict[str, list[WaitingJob]] = {}
    for job in queue:
        own.setdefault(job.user, []).append(job)
    turns = {user: iter(sorted(jobs, key=lambda job: -job.spec.priority)) for user, jobs in own.items()}
    return [next(turns[job.user]) for job in queue]
