"""Silence: what follows, and what does not, when nothing is heard of an attempt or its machine is gone."""

from __future__ import annotations

from dataclasses import replace

from crucible.core.lifecycle.outcome import end_attempt
from crucible.core.lifecycle.reasons import Reason
from crucible.core.lifecycle.states import Condition
from crucible.core.lifecycle.values import Attempt, Event, Machine, Step, World

NOTICE_AFTER = 45.0
"""Seconds of silence after which a job is shown as unreachable. Nothing else follows from it."""

SETTLE_WINDOW = 5.0
"""Seconds that a vanished machine's last messages may still take to arrive."""


def believed_at(machine: Machine, attempt: Attempt) -> float | None:
    """When the end of an attempt's machine is judged; None while it is not gone.

    Where nothing was ever heard of either, no last words can be under way: at once.
    """
    if machine.gone_at is None:
        return None
    silent = machine.up_at is None and attempt.last_seen is None
    return machine.gone_at if silent else machine.gone_at + SETTLE_WINDOW


def heard(world: World, attempt_id: str, now: float) -> Step:
    attempt = next((a for a in world.attempts if a.id == attempt_id and a.live), None)
    if attempt is None:
        return Step(world)
    seen = replace(attempt, last_seen=now)
    return _silence(world.with_attempt(seen), seen, now)


def look(world: World, now: float, listening_since: float = 0.0) -> Step:
    """Level-triggered: whatever was missed is found by looking at what is."""
    attempt = world.live
    if attempt is None:
        return Step(world)
    lost = [world.machines[s.machine] for s in attempt.slots if _lost(world, attempt, s.machine, now)]
    if lost:
        return _machines_lost(world, attempt, lost, now)
    return _silence(world, attempt, now, listening_since)


def _lost(world: World, attempt: Attempt, machine_id: str, now: float) -> bool:
    machine = world.machines.get(machine_id)
    believed = believed_at(machine, attempt) if machine else None
    return believed is not None and now >= believed


def _machines_lost(world: World, attempt: Attempt, lost: list[Machine], now: float) -> Step:
    gone = {machine.id for machine in lost}
    slots = tuple(replace(s, ended=s.ended or s.machine in gone) for s in attempt.slots)
    marked = replace(attempt, slots=slots)
    if not all(slot.ended for slot in slots):
        return Step(world.with_attempt(marked))
    return end_attempt(world, marked, attempt.reason or _why_lost(attempt, lost), now, detail=lost[0].detail)


def _why_lost(attempt: Attempt, lost: list[Machine]) -> Reason:
    if any(machine.interrupted for machine in lost):
        return Reason.INTERRUPTED
    if any(machine.up_at is None for machine in lost):
        return Reason.LAUNCH_FAILED
    return Reason.MACHINE_LOST if attempt.last_seen is not None else Reason.NOT_BEGUN


def _silence(world: World, attempt: Attempt, now: float, listening_since: float = 0.0) -> Step:
    """Only a sign of life makes a job reachable again: that somebody listens anew is none."""
    conditions = world.job.conditions
    marked = Condition.UNREACHABLE in conditions
    deaf_until = 0.0 if marked else listening_since
    quiet = attempt.last_seen is not None and now - max(attempt.last_seen, deaf_until) >= NOTICE_AFTER
    if quiet == marked:
        return Step(world)
    if not quiet:
        back = world.with_job(conditions=conditions - {Condition.UNREACHABLE})
        return Step(back, (Event("reachable", {"attempt": attempt.number}),))
    shown = world.with_job(conditions=conditions | {Condition.UNREACHABLE})
    return Step(shown, (Event("unreachable", {"attempt": attempt.number, "since": attempt.last_seen}),))
