"""Consequences of a silent attempt or a lost machine."""

from __future__ import annotations

from dataclasses import replace

from crucible.core.job.states import Condition, DesiredState
from crucible.core.lifecycle.outcome import end_attempt, release_machines, stop_attempt
from crucible.core.lifecycle.provider_queue import check_queue
from crucible.core.lifecycle.reasons import Reason
from crucible.core.lifecycle.values import Attempt, Event, Machine, Step, World

NOTICE_AFTER = 45.0
"""Seconds of silence after which a job is marked unreachable. Nothing else follows from it."""

REPLACE_MARGIN = 300.0
"""Seconds after the end of its lease until a silent attempt may be replaced."""

ENDING_MARGIN = 60.0
"""A machine that vanishes at most this many seconds before its planned end counts as having reached it."""

HOST_IS_LATE = "its host made no contact in time"

HOST_GRACE = 120.0
"""Seconds that hosts and runners have to make contact once the server listens again."""

STOP_SECONDS = 600.0
"""Seconds beyond its grace period after which an attempt that was asked to stop loses its machines."""

SETTLE_WINDOW = 5.0
"""Seconds that the last messages of a vanished machine may still take to arrive."""


def loss_confirmed_at(machine: Machine, attempt: Attempt) -> float | None:
    """Return when the loss of an attempt's machine takes effect; None while the machine is not gone.

    At once if neither the machine nor the attempt ever made contact; else a settle window after the last message, so
    that messages still in flight arrive first.
    """
    if machine.gone_at is None:
        return None
    if machine.up_at is None and attempt.last_seen is None:
        return machine.gone_at
    return max(machine.gone_at, attempt.last_seen or 0.0) + SETTLE_WINDOW


def record_contact(world: World, attempt_id: str, now: float) -> Step:
    """Record that a live attempt's runner made contact."""
    attempt = next((a for a in world.attempts if a.id == attempt_id and a.live), None)
    if attempt is None:
        return Step(world)
    seen = replace(attempt, last_seen=now)
    return _silence(world.with_attempt(seen), seen, now)


def check_attempt(world: World, now: float, listening_since: float = 0.0, *, has_alternative: bool = False) -> Step:
    """Check the live attempt for lost machines, silence and deadlines. Level-triggered: no earlier fact is needed.

    `has_alternative`: another backend has room for the job, if its machine waits too long in a provider's queue.
    """
    attempt = world.live
    if attempt is None:
        return Step(world)
    lost = [machine for machine in world.held(attempt) if _lost(machine, attempt, now)]
    if lost:
        return _machines_lost(world, attempt, lost, now)
    fence = fence_deadline(world, attempt, listening_since)
    if fence is not None and now >= fence:
        why = Reason.FENCED if attempt.noticed_at is None else Reason.INTERRUPTED
        return end_attempt(world, attempt, attempt.reason or why, now, detail="its agent was silent for too long")
    step = _check_deadlines(world, attempt, now, listening_since)
    if step.world.live is None:
        return step
    step = step.then(check_queue(step.world, step.world.live, now, has_alternative=has_alternative))
    return step.then(_silence(step.world, attempt, now, listening_since))


def _check_deadlines(world: World, attempt: Attempt, now: float, listening_since: float) -> Step:
    """Release machines whose time is over. A gang of which one host is late is given up as a whole."""
    over = overdue_reason(world, attempt, now, listening_since)
    step = Step(world)
    if over == HOST_IS_LATE and attempt.is_gang:
        step = stop_attempt(world, attempt, Reason.NOT_BEGUN, over, now)
    if not over or step.world.live is None:
        return step
    return step.then(release_machines(step.world, attempt, over, now))


def fence_deadline(world: World, attempt: Attempt, listening_since: float = 0.0) -> float | None:
    """Return when the attempt may be replaced though its backend cannot tell its state; None: never.

    By then its agents, which measure the same silence, have ended it by themselves. The time counts from when the
    server listened again: a clock that was set forward looks like a long silence here, but not to an agent.
    """
    held = world.held(attempt)
    if not held or any(machine.lease_seconds is None or machine.started_at is None for machine in held):
        return None
    heard_at = attempt.last_seen or max(machine.up_at or machine.started_at or 0.0 for machine in held)
    lease = max(machine.lease_seconds or 0.0 for machine in held)
    return max(heard_at, attempt.placed_at, listening_since) + lease + REPLACE_MARGIN


def overdue_reason(world: World, attempt: Attempt, now: float, listening_since: float) -> str:
    """Return why the attempt's machines must be released; empty while they may stay."""
    held = world.held(attempt)
    if any(machine.ends_at is not None and now >= machine.ends_at for machine in held):
        return "it reached its maximum runtime"
    if world.job.desired is DesiredState.CANCEL and now >= _mute_at(world, attempt, listening_since):
        return "the job was cancelled and its agent is silent"
    if attempt.stopping_since is not None and now >= _stop_overdue_at(world, attempt, listening_since):
        return "it was asked to stop and did not in time"
    late = [m for m in held if m.up_at is None and m.host_due is not None]
    if any(now >= max(m.host_due or 0.0, listening_since + HOST_GRACE) for m in late):
        return HOST_IS_LATE
    return ""


def _mute_at(world: World, attempt: Attempt, listening_since: float) -> float:
    """Return when an agent that was asked to stop has been silent for longer than stopping takes."""
    heard_at = max(attempt.last_seen or attempt.placed_at, listening_since)
    return heard_at + NOTICE_AFTER + world.job.spec.grace_seconds


def _stop_overdue_at(world: World, attempt: Attempt, listening_since: float) -> float:
    """Return when an attempt that was asked to stop loses its machines: earlier if it is silent."""
    asked_at = attempt.stopping_since or 0.0
    mute_at = max(asked_at + NOTICE_AFTER + world.job.spec.grace_seconds, _mute_at(world, attempt, listening_since))
    return min(mute_at, max(asked_at, listening_since) + world.job.spec.grace_seconds + STOP_SECONDS)


def deadlines(world: World, attempt: Attempt) -> list[float]:
    """Return the times at which something follows from time alone."""
    held = [m for m in world.held(attempt) if m.wanted]
    ends = [m.ends_at for m in held if m.ends_at is not None]
    hosts = [m.host_due for m in held if m.host_due is not None and m.up_at is None]
    fence = fence_deadline(world, attempt)
    return [*ends, *hosts, *([] if fence is None else [fence])]


def _lost(machine: Machine, attempt: Attempt, now: float) -> bool:
    believed = loss_confirmed_at(machine, attempt)
    return believed is not None and now >= believed


def _machines_lost(world: World, attempt: Attempt, lost: list[Machine], now: float) -> Step:
    """End the attempt if all its machines are lost. Otherwise stop its other ranks, unless the lost ones completed."""
    gone = {machine.id for machine in lost}
    slots = tuple(replace(s, ended=s.ended or s.machine in gone) for s in attempt.slots)
    marked = replace(attempt, slots=slots)
    why = _why_lost(attempt, lost)
    if all(slot.ended for slot in slots):
        return end_attempt(world, marked, attempt.reason or why, now, detail=lost[0].detail)
    step = Step(world.with_attempt(marked))
    if all(slot.reason is Reason.COMPLETED for slot in slots if slot.machine in gone):
        return step
    return step.then(stop_attempt(step.world, marked, why, lost[0].detail, now))


def _why_lost(attempt: Attempt, lost: list[Machine]) -> Reason:
    if any(machine.withdrawing for machine in lost):
        return Reason.WITHDRAWN
    if attempt.noticed_at is not None or any(machine.interrupted for machine in lost):
        return Reason.INTERRUPTED
    never_up = [machine for machine in lost if machine.up_at is None]
    if never_up and (attempt.last_seen is None or attempt.is_gang):
        return _why_never_up(attempt, never_up)
    if any(m.ends_at is not None and (m.gone_at or 0.0) >= m.ends_at - ENDING_MARGIN for m in lost):
        return Reason.SUSPENDED
    return Reason.MACHINE_LOST if attempt.last_seen is not None else Reason.NOT_BEGUN


def _why_never_up(attempt: Attempt, lost: list[Machine]) -> Reason:
    if not all(machine.belongs_to(attempt) for machine in lost):
        return Reason.LAUNCH_FAILED
    return Reason.REFUSED if all(machine.native_id is None for machine in lost) else Reason.NOT_BEGUN


def _silence(world: World, attempt: Attempt, now: float, listening_since: float = 0.0) -> Step:
    """Update the UNREACHABLE condition. Only a message marks a job reachable again; a restarted listener does not."""
    conditions = world.job.conditions
    marked = Condition.UNREACHABLE in conditions
    not_listening_until = 0.0 if marked else listening_since
    quiet = attempt.last_seen is not None and now - max(attempt.last_seen, not_listening_until) >= NOTICE_AFTER
    if quiet == marked:
        return Step(world)
    if not quiet:
        back = world.with_job(conditions=conditions - {Condition.UNREACHABLE})
        return Step(back, (Event("reachable", {"attempt": attempt.number}),))
    unreachable = world.with_job(conditions=conditions | {Condition.UNREACHABLE})
    return Step(unreachable, (Event("unreachable", {"attempt": attempt.number, "since": attempt.last_seen}),))
