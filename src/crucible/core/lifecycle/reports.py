"""Apply what runners report: an attempt's progress from staging to its end."""

from __future__ import annotations

from dataclasses import replace

from crucible.core.job.states import AttemptState
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.outcome import end_attempt, stop_attempt
from crucible.core.lifecycle.reasons import Reason, Retry
from crucible.core.lifecycle.silence import record_contact
from crucible.core.lifecycle.values import Attempt, Event, Step, World

_BEFORE_RUN = frozenset({AttemptState.PLACED, AttemptState.LAUNCHING, AttemptState.STAGING})
_BEFORE_EXIT = _BEFORE_RUN | {AttemptState.RUNNING}


def apply_report(world: World, fact: f.RunnerFact, now: float) -> Step:
    """Apply a runner's report. A report on any attempt but the live one changes nothing."""
    attempt = world.live
    if attempt is None or fact.attempt != attempt.id:
        return Step(world)
    contacted = record_contact(world, attempt.id, now)
    seen = next(a for a in contacted.world.attempts if a.id == attempt.id)
    match fact:
        case f.RunnerStaging(_, what):
            return contacted.then(_staging(contacted.world, seen, what))
        case f.RunnerStarted(_, rank, pid):
            return contacted.then(_started(contacted.world, seen, rank, pid, now))
        case f.RunnerExited():
            return contacted.then(_exited(contacted.world, seen, fact, now))
        case f.RunnerEnded():
            return contacted.then(_ended(contacted.world, seen, fact, now))


def apply_notice(world: World, attempt_id: str, seconds: float, now: float) -> Step:
    """Record an interruption notice, so that the reason is known if the runner's last messages get lost."""
    attempt = world.live
    if attempt is None or attempt.id != attempt_id or attempt.noticed_at is not None:
        return Step(world)
    data = {"attempt": attempt.number, "seconds": seconds}
    event = Event("interruption_notice", data)
    return Step(world.with_attempt(replace(attempt, noticed_at=now)), (event,))


def _staging(world: World, attempt: Attempt, what: str) -> Step:
    if attempt.state not in _BEFORE_RUN:
        return Step(world)
    event = Event("staging", {"attempt": attempt.number, "what": what})
    return Step(world.with_attempt(replace(attempt, state=AttemptState.STAGING)), (event,))


def _started(world: World, attempt: Attempt, rank: int, pid: int | None, now: float) -> Step:
    if attempt.state not in _BEFORE_RUN:
        return Step(world)
    running = replace(attempt, state=AttemptState.RUNNING, started_at=now, pid=pid if rank == 0 else attempt.pid)
    unstarted = (Retry.UNBEGUN, Retry.REFUSAL)
    used = {retry: count for retry, count in world.job.used.items() if retry not in unstarted}
    begun = world.with_attempt(running).with_job(started_at=world.job.started_at or now, used=used)
    return Step(begun, (Event("started", {"attempt": attempt.number, "pid": pid}),))


def _exited(world: World, attempt: Attempt, fact: f.RunnerExited, now: float) -> Step:
    if attempt.is_gang:
        return _rank_exited(world, attempt, fact, now)
    if attempt.state not in _BEFORE_EXIT:
        return Step(world)
    if attempt.stopping_since is not None and fact.reason is Reason.CANCELLED:
        return _decide_outcome(world, attempt, fact, now, attempt.reason, attempt.detail)
    return _decide_outcome(world, attempt, fact, now, fact.reason, fact.text)


def _decide_outcome(
    world: World, attempt: Attempt, fact: f.RunnerExited, now: float, reason: Reason | None, detail: str
) -> Step:
    """Record how the attempt's program ended; outputs are still being stored."""
    saving = replace(
        attempt,
        state=AttemptState.SAVING,
        reason=reason,
        detail=detail,
        exit_code=fact.code,
        signal=fact.signal,
        exited_at=now,
    )
    data = {"attempt": attempt.number, "reason": fact.reason.value, "code": fact.code, "signal": fact.signal}
    event = Event("exited", {**data, "rank": fact.rank} if attempt.is_gang else data)
    return Step(world.with_attempt(saving), (event,))


def _rank_exited(world: World, attempt: Attempt, fact: f.RunnerExited, now: float) -> Step:
    """Record how one rank of a gang ended. The first one to fail decides the outcome, and stops the others."""
    known = next((slot for slot in attempt.slots if slot.rank == fact.rank), None)
    if known is None or known.reason is not None or known.ended:
        return Step(world)
    slots = tuple(replace(s, reason=fact.reason) if s is known else s for s in attempt.slots)
    marked = replace(attempt, slots=slots)
    if all(slot.reason is Reason.COMPLETED for slot in slots):
        return _decide_outcome(world, marked, fact, now, Reason.COMPLETED, fact.text)
    if fact.reason is Reason.COMPLETED or attempt.reason is not None:
        return Step(world.with_attempt(marked))
    step = _decide_outcome(world, marked, fact, now, fact.reason, fact.text)
    decided = next(a for a in step.world.attempts if a.id == attempt.id)
    return step.then(stop_attempt(step.world, decided, fact.reason, f"rank {fact.rank} has ended", now))


def _ended(world: World, attempt: Attempt, fact: f.RunnerEnded, now: float) -> Step:
    slots = tuple(replace(s, ended=True) if s.rank == fact.rank else s for s in attempt.slots)
    marked = replace(attempt, slots=slots, detail=attempt.detail or fact.text)
    missing = {"attempt": attempt.number, "rank": fact.rank, "why": fact.text}
    step = Step(world.with_attempt(marked), () if fact.complete else (Event("outputs_incomplete", missing),))
    default = Reason.RUNNER_LOST if marked.noticed_at is None else Reason.INTERRUPTED
    if all(slot.ended for slot in slots):
        return step.then(end_attempt(step.world, marked, marked.reason or default, now))
    if any(slot.rank == fact.rank and slot.reason is None for slot in slots):
        return step.then(stop_attempt(step.world, marked, default, f"rank {fact.rank} has ended", now))
    return step
