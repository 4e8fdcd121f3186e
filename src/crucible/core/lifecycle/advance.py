"""`advance`: the one way a job moves.

    advance(world, fact, now) -> Step(world, events, effects, touched)

Pure and total: any fact in any state gives an answer, and a fact that means nothing there changes nothing.
Facts may come twice, late or out of order. The outcome of an attempt is decided by its runner's exit report;
where none can come (its machine is gone and the settle window has passed) by what the place says.
"""

from __future__ import annotations

from dataclasses import replace

from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.machines import advance_machine
from crucible.core.lifecycle.outcome import conclude, end_attempt
from crucible.core.lifecycle.reasons import Reason
from crucible.core.lifecycle.states import AttemptState, Condition, JobState, MachineState, Wish
from crucible.core.lifecycle.values import Attempt, Effect, EffectKind, Event, Job, Machine, Step, World

NOTICE_AFTER = 45.0
"""Seconds of silence after which a job is shown as unreachable. Nothing else follows from it."""

SETTLE_WINDOW = 5.0
"""Seconds that a vanished machine's last messages may still take to arrive."""

_BEFORE_RUN = frozenset({AttemptState.PLACED, AttemptState.LAUNCHING, AttemptState.STAGING})
_BEFORE_EXIT = _BEFORE_RUN | {AttemptState.RUNNING}


def advance(world: World, fact: f.Fact, now: float) -> Step:
    if world.job.state.terminal:
        return Step(world)
    return _finish(_decide(world, fact, now), now)


def _decide(world: World, fact: f.Fact, now: float) -> Step:
    match fact:
        case f.Planned():
            return _planned(world)
        case f.Waits(why):
            return _waits(world, why)
        case f.Placed():
            return _placed(world, fact)
        case f.Impossible(why):
            return _impossible(world, why, now)
        case f.CancelRequested(by):
            return _cancel(world, by, now)
        case f.Heard(attempt):
            return _heard(world, attempt, now)
        case f.Tick():
            return _look(world, now)
        case _:
            return _reported(world, fact, now)


def _planned(world: World) -> Step:
    if world.job.state is not JobState.PENDING:
        return Step(world)
    return Step(world.with_job(state=JobState.QUEUED), (Event("queued"),))


def _waits(world: World, why: str) -> Step:
    if world.job.state is not JobState.QUEUED or world.job.waiting == why:
        return Step(world)
    return Step(world.with_job(waiting=why))


def _placed(world: World, fact: f.Placed) -> Step:
    attempt, machine = fact.attempt, fact.machine
    if not _may_start(world.job, attempt) or world.live or not machine.wanted:
        return Step(world)
    state = AttemptState.PLACED if machine.state is MachineState.UP else AttemptState.LAUNCHING
    placed = world.with_machine(machine).with_attempt(replace(attempt, state=state))
    placed = placed.with_job(attempts=attempt.number, waiting="", placement=fact.why)
    told = {"attempt": attempt.number, "backend": attempt.backend, "machine": machine.id, "why": fact.why}
    event = Event("placed", told)
    effects = (Effect(EffectKind.LAUNCH, machine.id),) if fact.new else ()
    return Step(placed, (event,), effects, frozenset({machine.id}))


def _may_start(job: Job, attempt: Attempt) -> bool:
    """A queued job that is still wanted gets its next attempt; one placed before cannot come again."""
    next_one = (attempt.job, attempt.number, attempt.generation) == (job.id, job.attempts + 1, job.generation)
    return next_one and job.state is JobState.QUEUED and job.desired is Wish.RUN


def _impossible(world: World, why: str, now: float) -> Step:
    if world.job.state not in (JobState.PENDING, JobState.QUEUED) or world.live:
        return Step(world)
    return conclude(world, Reason.NO_CAPACITY, why, now)


def _cancel(world: World, by: str, now: float) -> Step:
    if world.job.desired is Wish.CANCEL:
        return Step(world)
    wanted = world.with_job(desired=Wish.CANCEL, generation=world.job.generation + 1)
    asked = Step(wanted, (Event("cancel_requested", {"by": by}),), (), _machines_of(world.live))
    if world.live is None:
        return asked.then(conclude(wanted, Reason.CANCELLED, "", now))
    return asked.then(_release_unused(wanted, "the job was cancelled", now))


def _release_unused(world: World, why: str, now: float) -> Step:
    """Machines made for an attempt that has not begun are of no use to anyone else: give them back."""
    attempt = world.live
    step = Step(world)
    if attempt is None or attempt.state not in (AttemptState.PLACED, AttemptState.LAUNCHING):
        return step
    for slot in attempt.slots:
        machine = world.machines.get(slot.machine)
        if machine and machine.owner == f"attempt:{attempt.id}":
            released = advance_machine(machine, f.Unwanted(why), now)
            step = step.then(Step(step.world.with_machine(released.machine), (), released.effects))
    return step


def _reported(world: World, fact: f.Fact, now: float) -> Step:
    """What a runner says. The attempt's id goes end to end: a report on any other attempt changes nothing."""
    attempt = world.live
    if attempt is None or getattr(fact, "attempt", None) != attempt.id:
        return Step(world)
    heard = _heard(world, attempt.id, now)
    seen = next(a for a in heard.world.attempts if a.id == attempt.id)
    match fact:
        case f.RunnerStaging(_, what):
            return heard.then(_staging(heard.world, seen, what))
        case f.RunnerStarted(_, rank, pid):
            return heard.then(_started(heard.world, seen, rank, pid, now))
        case f.RunnerExited():
            return heard.then(_exited(heard.world, seen, fact, now))
        case f.RunnerEnded():
            return heard.then(_ended(heard.world, seen, fact, now))
        case _:
            return heard


def _staging(world: World, attempt: Attempt, what: str) -> Step:
    if attempt.state not in _BEFORE_RUN:
        return Step(world)
    event = Event("staging", {"attempt": attempt.number, "what": what})
    return Step(world.with_attempt(replace(attempt, state=AttemptState.STAGING)), (event,))


def _started(world: World, attempt: Attempt, rank: int, pid: int | None, now: float) -> Step:
    if attempt.state not in _BEFORE_RUN:
        return Step(world)
    running = replace(
        attempt, state=AttemptState.RUNNING, started_at=now, pid=pid if rank == 0 else attempt.pid
    )
    begun = world.with_attempt(running).with_job(started_at=world.job.started_at or now)
    return Step(begun, (Event("started", {"attempt": attempt.number, "pid": pid}),))


def _exited(world: World, attempt: Attempt, fact: f.RunnerExited, now: float) -> Step:
    if attempt.state not in _BEFORE_EXIT:
        return Step(world)
    saving = replace(
        attempt,
        state=AttemptState.SAVING,
        reason=fact.reason,
        detail=fact.text,
        exit_code=fact.code,
        signal=fact.signal,
        exited_at=now,
    )
    told = {"attempt": attempt.number, "reason": fact.reason.value, "code": fact.code, "signal": fact.signal}
    return Step(world.with_attempt(saving), (Event("exited", told),))


def _ended(world: World, attempt: Attempt, fact: f.RunnerEnded, now: float) -> Step:
    slots = tuple(replace(s, ended=True) if s.rank == fact.rank else s for s in attempt.slots)
    marked = replace(attempt, slots=slots, detail=attempt.detail or fact.text)
    if not all(slot.ended for slot in slots):
        return Step(world.with_attempt(marked))
    return end_attempt(world, marked, marked.reason or Reason.RUNNER_LOST, now)


def _heard(world: World, attempt_id: str, now: float) -> Step:
    attempt = next((a for a in world.attempts if a.id == attempt_id and a.live), None)
    if attempt is None:
        return Step(world)
    heard = replace(attempt, last_seen=now)
    return _silence(world.with_attempt(heard), heard, now)


def _look(world: World, now: float) -> Step:
    """Level-triggered: whatever was missed is found by looking at what is."""
    attempt = world.live
    if attempt is None:
        return Step(world)
    lost = [world.machines[s.machine] for s in attempt.slots if _lost(world, s.machine, now)]
    if lost:
        return _machines_lost(world, attempt, lost, now)
    return _silence(world, attempt, now)


def _lost(world: World, machine_id: str, now: float) -> bool:
    machine = world.machines.get(machine_id)
    return machine is not None and machine.gone_at is not None and now >= machine.gone_at + SETTLE_WINDOW


def _machines_lost(world: World, attempt: Attempt, lost: list[Machine], now: float) -> Step:
    gone = {machine.id for machine in lost}
    slots = tuple(replace(s, ended=s.ended or s.machine in gone) for s in attempt.slots)
    marked = replace(attempt, slots=slots)
    if not all(slot.ended for slot in slots):
        return Step(world.with_attempt(marked))
    return end_attempt(world, marked, attempt.reason or _why_lost(lost), now, detail=lost[0].detail)


def _why_lost(lost: list[Machine]) -> Reason:
    if any(machine.interrupted for machine in lost):
        return Reason.INTERRUPTED
    if any(machine.up_at is None for machine in lost):
        return Reason.LAUNCH_FAILED
    return Reason.MACHINE_LOST


def _silence(world: World, attempt: Attempt, now: float) -> Step:
    quiet = attempt.last_seen is not None and now - attempt.last_seen >= NOTICE_AFTER
    conditions = world.job.conditions
    if quiet == (Condition.UNREACHABLE in conditions):
        return Step(world)
    if not quiet:
        back = world.with_job(conditions=conditions - {Condition.UNREACHABLE})
        return Step(back, (Event("reachable", {"attempt": attempt.number}),))
    shown = world.with_job(conditions=conditions | {Condition.UNREACHABLE})
    return Step(shown, (Event("unreachable", {"attempt": attempt.number, "since": attempt.last_seen}),))


def _finish(step: Step, now: float) -> Step:
    """Derives what follows from the rest: the job's phase and when to look again."""
    world = step.world
    if world.job.state.terminal:
        return replace(step, world=world.with_job(due_at=None, conditions=frozenset()))
    derived = world.with_job(state=_phase(world), due_at=_due(world, now))
    return replace(step, world=derived)


def _phase(world: World) -> JobState:
    attempt = world.live
    if attempt is None:
        return world.job.state
    if world.job.desired is not Wish.RUN:
        return JobState.STOPPING
    if attempt.state in (AttemptState.RUNNING, AttemptState.SAVING):
        return JobState.RUNNING
    if attempt.state is AttemptState.STAGING:
        return JobState.STARTING
    up = all(
        world.machines[s.machine].state is MachineState.UP
        for s in attempt.slots
        if s.machine in world.machines
    )
    return JobState.STARTING if up else JobState.PROVISIONING


def _due(world: World, now: float) -> float | None:
    """When silence must be judged next.

    A time already set is kept, so that a chatty job costs no extra writes.
    """
    attempt = world.live
    if attempt is None:
        return None
    held = [world.machines[s.machine] for s in attempt.slots if not s.ended and s.machine in world.machines]
    gone = [machine.gone_at + SETTLE_WINDOW for machine in held if machine.gone_at is not None]
    if gone:
        return min(gone)
    due = world.job.due_at
    if due is not None and due > now:
        return due
    if Condition.UNREACHABLE in world.job.conditions:
        return now + NOTICE_AFTER
    return max((attempt.last_seen or now) + NOTICE_AFTER, now + 1.0)


def _machines_of(attempt: Attempt | None) -> frozenset[str]:
    return frozenset(slot.machine for slot in attempt.slots) if attempt else frozenset()


def new_job(job: Job) -> Step:
    """A job's first step: accepted, planned, queued."""
    accepted = Step(World(job), (Event("submitted", {"name": job.spec.name, "kind": job.spec.kind.value}),))
    return accepted.then(advance(accepted.world, f.Planned(), job.created_at))
