"""`advance`: the only way in which a job changes its state.

    advance(world, fact, now) -> Step(world, events, effects, touched)

Pure and total: it accepts any fact in any state, and a fact that means nothing there changes nothing.
Facts may be repeated, late or out of order. An ended job stays ended unless a user asks to resume it. The outcome of
an attempt is decided by its runner's exit report; without one (its machine is gone and the settle window has passed)
by what the backend reports.
"""

from __future__ import annotations

from dataclasses import replace

from crucible.core.job.states import AttemptState, Condition, DesiredState, JobState, MachineState
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.outcome import end_attempt, end_job, never_contacted, release_machines, stop_attempt
from crucible.core.lifecycle.provider_queue import withdrawal_due
from crucible.core.lifecycle.reasons import Reason
from crucible.core.lifecycle.reopen import reopen
from crucible.core.lifecycle.reports import apply_notice, apply_report
from crucible.core.lifecycle.silence import NOTICE_AFTER, check_attempt, deadlines, loss_confirmed_at, record_contact
from crucible.core.lifecycle.values import Attempt, Effect, EffectKind, Event, Job, Step, World

CHECK_AGAIN = 5.0
"""Seconds until a job that may have become silent is checked again."""


def advance(world: World, fact: f.Fact, now: float) -> Step:
    """Return the world after this fact, with the events and effects that follow. Idempotent for repeated facts."""
    if world.job.state.terminal and not isinstance(fact, f.ResumeRequested):
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
        case f.NothingSaved():
            return _unsaved(world, now)
        case f.CancelRequested(by):
            return _cancel(world, by, now)
        case f.ResumeRequested():
            return reopen(world, fact, now)
        case f.CheckpointRequested(by):
            return _request_checkpoint(world, by)
        case f.StopAttempt():
            return _stop_attempt(world, fact, now)
        case f.InterruptionNoticed(attempt, seconds):
            return apply_notice(world, attempt, seconds, now)
        case f.RunnerContacted(attempt):
            return record_contact(world, attempt, now)
        case f.Tick(listening_since, has_alternative):
            return check_attempt(world, now, listening_since, has_alternative=has_alternative)
        case f.RunnerStaging() | f.RunnerStarted() | f.RunnerExited() | f.RunnerEnded():
            return apply_report(world, fact, now)


def _planned(world: World) -> Step:
    if world.job.state is not JobState.PENDING:
        return Step(world)
    return Step(world.with_job(state=JobState.QUEUED), (Event("queued"),))


def _waits(world: World, why: str) -> Step:
    if world.job.state is not JobState.QUEUED or world.job.waiting == why:
        return Step(world)
    return Step(world.with_job(waiting=why))


def _placed(world: World, fact: f.Placed) -> Step:
    attempt, machines = fact.attempt, {machine.id: machine for machine in fact.machines}
    if not _may_start(world.job, attempt) or world.live or not all(m.wanted for m in machines.values()):
        return Step(world)
    up = all(machine.state is MachineState.UP for machine in machines.values())
    state = AttemptState.PLACED if up else AttemptState.LAUNCHING
    placed = replace(world, machines={**world.machines, **machines}).with_attempt(replace(attempt, state=state))
    placed = placed.with_job(attempts=attempt.number, backend=attempt.backend, waiting="", placement=fact.why)
    names = list(machines)
    data = {"attempt": attempt.number, "backend": attempt.backend, "machine": names[0], "why": fact.why}
    event = Event("placed", data if len(names) == 1 else {**data, "machines": names})
    new = [m for m in machines.values() if m.id in fact.new and m.gang in (None, m.id)]
    effects = tuple(Effect(EffectKind.LAUNCH, machine.id) for machine in new)
    return Step(placed, (*_moved_on(world.job, fact), event), effects, frozenset(machines))


def _moved_on(job: Job, fact: f.Placed) -> tuple[Event, ...]:
    """Return the event of a job that runs on another backend than it waited for or ran on last."""
    if job.backend == fact.attempt.backend:
        return ()
    return (Event("moved_on", {"from": job.backend, "to": fact.attempt.backend, "why": fact.passed_over}),)


def _may_start(job: Job, attempt: Attempt) -> bool:
    """Return whether this is the next attempt of a queued job that is still wanted; repeated facts are not."""
    next_one = (attempt.job, attempt.number, attempt.generation) == (job.id, job.attempts + 1, job.generation)
    return next_one and job.state is JobState.QUEUED and job.desired is DesiredState.RUN


def _unsaved(world: World, now: float) -> Step:
    if world.job.state is not JobState.QUEUED or world.live or not world.attempts:
        return Step(world)
    why = "it saved no checkpoint in that time, so it would only start over"
    return end_job(world, Reason.SUSPENDED, why, now, world.attempts[-1])


def _request_checkpoint(world: World, by: str) -> Step:
    attempt = world.live
    if attempt is None or attempt.state is not AttemptState.RUNNING:
        return Step(world)
    requested = world.with_job(checkpoint=world.job.checkpoint + 1)
    return Step(requested, (Event("checkpoint_requested", {"by": by}),), (), _machines_of(attempt))


def _cancel(world: World, by: str, now: float) -> Step:
    if world.job.desired is DesiredState.CANCEL:
        return Step(world)
    wanted = world.with_job(desired=DesiredState.CANCEL, generation=world.job.generation + 1)
    requested = Step(wanted, (Event("cancel_requested", {"by": by}),), (), _machines_of(world.live))
    if world.live is None:
        return requested.then(end_job(wanted, Reason.CANCELLED, "", now))
    if world.live.state is AttemptState.SAVING:
        cancelled = replace(world.live, reason=Reason.CANCELLED)
        return replace(requested, world=wanted.with_attempt(cancelled))
    if world.live.state not in (AttemptState.PLACED, AttemptState.LAUNCHING):
        return requested
    if never_contacted(world, world.live):
        return requested.then(end_attempt(wanted, world.live, Reason.CANCELLED, now))
    return requested.then(release_machines(wanted, world.live, "the job was cancelled", now))


def _stop_attempt(world: World, fact: f.StopAttempt, now: float) -> Step:
    """Ask the attempt to stop; once its program has ended it is too late, and its own outcome counts."""
    attempt = world.live
    if attempt is None or attempt.id != fact.attempt or attempt.state is AttemptState.SAVING:
        return Step(world)
    return stop_attempt(world, attempt, fact.reason, fact.why, now)


def _finish(step: Step, now: float) -> Step:
    """Derive the job's state and when to check it again."""
    world = step.world
    if world.job.state.terminal:
        return replace(step, world=world.with_job(due_at=None, conditions=frozenset()))
    derived = world.with_job(state=_phase(world), due_at=_due(world, now))
    return replace(step, world=derived)


def _phase(world: World) -> JobState:
    attempt = world.live
    if attempt is None:
        return world.job.state
    if world.job.desired is not DesiredState.RUN:
        return JobState.STOPPING
    if attempt.state in (AttemptState.RUNNING, AttemptState.SAVING):
        return JobState.RUNNING
    if attempt.state is AttemptState.STAGING:
        return JobState.STARTING
    up = all(world.machines[s.machine].state is MachineState.UP for s in attempt.slots if s.machine in world.machines)
    return JobState.STARTING if up else JobState.PROVISIONING


def _due(world: World, now: float) -> float | None:
    """Return when silence must be checked next.

    A time already set is kept, so that frequent messages cost no extra writes.
    """
    attempt = world.live
    if attempt is None:
        return None
    held = world.held(attempt)
    gone = [at for machine in held if (at := loss_confirmed_at(machine, attempt)) is not None]
    if gone:
        return min(gone)
    later = [at for at in (withdrawal_due(world.job, machine) for machine in held) if at is not None and at > now]
    checks = (max(at, now + CHECK_AGAIN) for at in deadlines(world, attempt))
    return min([_next_check(world.job, attempt, now), *checks, *later])


def _next_check(job: Job, attempt: Attempt, now: float) -> float:
    if job.due_at is not None and job.due_at > now:
        return job.due_at
    if Condition.UNREACHABLE in job.conditions:
        return now + NOTICE_AFTER
    return max((attempt.last_seen or now) + NOTICE_AFTER, now + CHECK_AGAIN)


def _machines_of(attempt: Attempt | None) -> frozenset[str]:
    return frozenset(slot.machine for slot in attempt.slots) if attempt else frozenset()


def new_job(job: Job) -> Step:
    """Return the first step of a job: submitted and queued."""
    accepted = Step(World(job), (Event("submitted", {"name": job.spec.name, "kind": job.spec.kind.value}),))
    return accepted.then(advance(accepted.world, f.Planned(), job.created_at))
