"""How the end of an attempt leads to the job's next state: another attempt, or its end."""

from __future__ import annotations

import math
from dataclasses import replace

from crucible.core.job.states import AttemptState, Condition, DesiredState, JobState
from crucible.core.lifecycle.facts import Unwanted
from crucible.core.lifecycle.machines import advance_machine
from crucible.core.lifecycle.reasons import Reason, Retry
from crucible.core.lifecycle.values import Attempt, Event, Job, Step, World

FIRST_WAIT = 2.0
"""Seconds before the first retry after an infrastructure failure; doubles up to the job's own wait."""

UNBEGUN_TRIES = 20
"""Retries of a job that never started. It is not charged, but vanishing machines must not be retried for ever."""

REFUSALS = 100_000
"""Retries after a backend had no capacity: practically as long as the user wants the job.

The scheduler takes the next candidate at once, and pauses before it tries a kind of offer again.
"""

SUSPENSIONS = 1000
"""Times a job may continue after its machine reached its maximum run time."""


def end_attempt(world: World, attempt: Attempt, reason: Reason, now: float, *, detail: str = "") -> Step:
    """End the attempt: release its own machines, free the shared ones, and retry or end the job."""
    judged = _judge(world.job, reason)
    ended = replace(
        attempt,
        state=AttemptState.ENDED,
        slots=tuple(replace(slot, ended=True) for slot in attempt.slots),
        reason=judged,
        detail=attempt.detail or detail,
        ended_at=now,
    )
    event = Event("attempt_ended", {"attempt": attempt.number, "reason": judged.value, "detail": ended.detail})
    touched = frozenset(slot.machine for slot in attempt.slots)
    step = Step(world.with_attempt(ended), (event,), (), touched)
    step = step.then(release_machines(step.world, ended, "its attempt has ended", now))
    return step.then(_next(step.world, ended, judged, now))


def end_job(world: World, reason: Reason, detail: str, now: float, attempt: Attempt | None = None) -> Step:
    """End the job with the outcome of this reason."""
    outcome = reason.policy.outcome
    ended = world.with_job(
        state=outcome,
        reason=reason,
        detail=detail,
        waiting="",
        ended_at=now,
        due_at=None,
        conditions=frozenset(),
        exit_code=attempt.exit_code if attempt else None,
        signal=attempt.signal if attempt else None,
    )
    return Step(ended, (Event(outcome.value, {"reason": reason.value, "detail": detail}),))


def _judge(job: Job, reason: Reason) -> Reason:
    """Return the reason that counts: completion stands, otherwise a requested cancel outranks how the program ended.

    A stop that was not requested is an infrastructure failure.
    """
    if job.desired is DesiredState.CANCEL:
        return reason if reason is Reason.COMPLETED else Reason.CANCELLED
    return Reason.RUNNER_LOST if reason is Reason.CANCELLED else reason


def stop_attempt(world: World, attempt: Attempt, reason: Reason, why: str, now: float) -> Step:
    """Ask the live attempt to save and stop. It ends for this reason once its runners have ended or its machines went.

    Its own machines are released at once if nothing was prepared on them yet, else once it has not stopped in time (see
    overdue_reason). Does nothing if it is being stopped or cancelled already.
    """
    if attempt.stopping_since is not None or world.job.desired is not DesiredState.RUN:
        return Step(world)
    stopping = replace(attempt, stopping_since=now, reason=attempt.reason or reason, detail=attempt.detail or why)
    event = Event("stopping", {"attempt": attempt.number, "reason": reason.value, "why": why})
    touched = frozenset(slot.machine for slot in attempt.slots)
    step = Step(world.with_attempt(stopping), (event,), (), touched)
    if attempt.state not in (AttemptState.PLACED, AttemptState.LAUNCHING):
        return step
    own = any(world.machines[s.machine].belongs_to(attempt) for s in attempt.slots if s.machine in world.machines)
    if never_contacted(world, attempt) and not own:
        return step.then(end_attempt(step.world, stopping, reason, now))
    return step.then(release_machines(step.world, stopping, why, now))


def never_contacted(world: World, attempt: Attempt) -> bool:
    """Return whether no host has claimed its machines or made contact, so that none can have the assignment."""
    machines = [world.machines.get(slot.machine) for slot in attempt.slots]
    none_came = all(m is not None and m.claimed_by is None and m.up_at is None for m in machines)
    return none_came and attempt.last_seen is None


def release_machines(world: World, attempt: Attempt, why: str, now: float) -> Step:
    """Release the machines that were made for this attempt alone."""
    step = Step(world)
    for slot in attempt.slots:
        machine = world.machines.get(slot.machine)
        if machine and machine.belongs_to(attempt):
            released = advance_machine(machine, Unwanted(why), now)
            step = step.then(Step(step.world.with_machine(released.machine), (), released.effects))
    return step


def _next(world: World, attempt: Attempt, reason: Reason, now: float) -> Step:
    retry = reason.policy.retry
    used = world.job.used.get(retry, 0)
    if retry is Retry.NEVER or used >= _budget(world.job, retry):
        return end_job(world, reason, attempt.detail, now, attempt)
    wait = _wait(world.job, retry, used)
    queued = world.with_job(
        state=JobState.QUEUED,
        used=world.job.used if retry is Retry.FREE else {**world.job.used, retry: used + 1},
        not_before=now + wait,
        waiting=f"attempt {attempt.number + 1} starts {wait:g} s after the last one: {reason.policy.message}",
        conditions=world.job.conditions - {Condition.UNREACHABLE},
    )
    return Step(queued, (Event("retrying", {"after": reason.value, "wait_seconds": wait, "try": used + 1}),))


def _budget(job: Job, retry: Retry) -> float:
    retries = job.spec.retries
    return {
        Retry.INTERRUPTION: retries.interruption,
        Retry.INFRASTRUCTURE: retries.infrastructure,
        Retry.USER: retries.user,
        Retry.UNBEGUN: UNBEGUN_TRIES,
        Retry.REFUSAL: REFUSALS,
        Retry.SUSPENSION: SUSPENSIONS,
        Retry.FREE: math.inf,
    }[retry]


def _wait(job: Job, retry: Retry, used: int) -> float:
    longest = job.spec.retries.wait_seconds
    match retry:
        case Retry.USER:
            return longest
        case Retry.INFRASTRUCTURE:
            return min(FIRST_WAIT * 2.0 ** min(used, 16), longest)
        case _:
            return 0.0
