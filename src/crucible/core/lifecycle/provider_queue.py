"""Attempts whose machines wait in a provider's own queue: why they wait, and when they are withdrawn."""

from __future__ import annotations

from datetime import UTC, datetime

from crucible.core.compute.resources import format_duration
from crucible.core.job.states import DesiredState, MachineState
from crucible.core.lifecycle.facts import Withdraw
from crucible.core.lifecycle.machines import advance_machine
from crucible.core.lifecycle.values import Attempt, Job, Machine, Step, World


def withdrawal_due(job: Job, machine: Machine) -> float | None:
    """Return when the machine has stood in its provider's queue for as long as the user allows; None: never."""
    longest = job.spec.max_wait_seconds
    if longest is None or machine.queued_at is None or machine.state is not MachineState.QUEUED:
        return None
    return machine.queued_at + longest


def is_queued_too_long(world: World, attempt: Attempt, now: float) -> bool:
    """Return whether a machine of the attempt has stood in its provider's queue for longer than the user allows."""
    times = (withdrawal_due(world.job, machine) for machine in world.held(attempt))
    return any(due is not None and now >= due for due in times)


def check_queue(world: World, attempt: Attempt, now: float, *, has_alternative: bool) -> Step:
    """Store why the attempt's machines wait in a provider's queue; withdraw them if they have waited for too long.

    `has_alternative`: another backend has room for the job now, so that it does not return to the end of this queue.
    """
    queued = [machine for machine in world.held(attempt) if machine.state is MachineState.QUEUED]
    step, is_late = Step(world), is_queued_too_long(world, attempt, now)
    if is_late and has_alternative and world.job.desired is DesiredState.RUN and attempt.stopping_since is None:
        why = f"it waited in the queue of {attempt.backend} for longer than {_max_wait(world.job)}"
        for machine in queued:
            after = advance_machine(machine, Withdraw(why), now)
            step = step.then(Step(step.world.with_machine(after.machine), (), after.effects))
    machines = [step.world.machines[machine.id] for machine in queued]
    waiting = _describe_wait(world.job, machines, is_late=is_late) if machines else ""
    return step if waiting == world.job.waiting else step.then(Step(step.world.with_job(waiting=waiting)))


def _describe_wait(job: Job, queued: list[Machine], *, is_late: bool) -> str:
    first = min(queued, key=lambda machine: machine.queued_at or 0.0)
    if first.withdrawing:
        return f"is being withdrawn: {first.detail}"
    since = datetime.fromtimestamp(first.queued_at or 0.0, UTC).strftime("%Y-%m-%d %H:%M UTC")
    where = f"waits in the queue of {first.backend} since {since}"
    said = f"{where}: {first.detail}" if first.detail else where
    if job.spec.max_wait_seconds is None:
        return f"{said} (it goes on waiting; --max-wait sets a limit)"
    if is_late:
        has_others = any(candidate.backend != first.backend for candidate in job.candidates)
        why = "no other of its backends has room for it now" if has_others else "it can run nowhere else"
        return f"{said} (longer than {_max_wait(job)}, but {why})"
    return f"{said} (for at most {_max_wait(job)}, then it is withdrawn once another of its backends has room)"


def _max_wait(job: Job) -> str:
    return format_duration(job.spec.max_wait_seconds or 0.0)
