"""How the end of an attempt leads to the job's next state: another attempt, or its end."""

from __future__ import annotations

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
"""Retries after a backend had no capacity: practically as long as the user wants the job."""

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
        backend=world.job.spec.backend_after(world.job.backend) if reason.moves_on else world.job.backend,
        used={**world.job.used, retry: used + 1},
        not_before=now + wait,
        waiting=f"attempt {attempt.number + 1} starts {wait:g} s after the last one: {reason.policy.message}",
        conditions=world.job.conditions - {Condition.UNREACHABLE},
    )
    return Step(queued, (Event("retrying", {"after": reason.value, "wait_seconds": wait, "try": used + 1}),))


def _budget(job: Job, retry: Retry) -> int:
    retries = job.spec.retries
    return {
        Retry.INTERRUPTION: retries.interruption,
        Retry.INFRASTRUCTURE: retries.infrastructure,
        Retry.USER: retries.user,
        Retry.UNBEGUN: UNBEGUN_TRIES,
        Retry.REFUSAL: REFUSALS,
        Retry.SUSPENSION: SUSPENSIONS,
    }[retry]


def _wait(job: Job, retry: Retry, used: int) -> float:
    longest = job.spec.retries.wait_seconds
    match retry:
        case Retry.USER:
            return longest
        case Retry.INFRASTRUCTURE | Retry.UNBEGUN | Retry.REFUSAL:
            return min(FIRST_WAIT * 2.0 ** min(used, 16), longest)
        case _:
            return 0.0
