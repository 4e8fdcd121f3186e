"""A backup of another deployment, taken for its history alone: what it says is out there is not ours to touch."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection, case, select, update

from crucible.control.db import meta
from crucible.control.db import schema as t
from crucible.control.jobs.queries import TERMINAL_STATES
from crucible.control.reconcile import repository
from crucible.control.runtime.admission import COMPUTER
from crucible.core.lifecycle import AttemptState, Event, MachineState, Reason, Step, World
from crucible.core.lifecycle.outcome import end_job


def disown(conn: Connection, deployment: str, backup_at: float, now: float) -> None:
    """Nothing of `deployment` is launched, asked for, ended, metered or run from here: it may live on there."""
    why = f"it belongs to another deployment, {deployment}: its history alone was restored"
    conn.execute(update(t.effects).where(t.effects.c.done.is_(False)).values(done=True, error=why))
    for job in conn.execute(select(t.jobs.c.id).where(t.jobs.c.state.not_in(TERMINAL_STATES))).scalars().all():
        _conclude(conn, job, why, now)
    conn.execute(update(t.slots).values(ended=True))
    c = t.machines.c
    gone = {"state": MachineState.GONE.value, "gone_at": now, "detail": why, "version": c.version + 1}
    conn.execute(update(t.machines).where(c.state != MachineState.GONE.value).values(gone))
    conn.execute(update(t.machines).values(metered=True))
    _close_bills(conn, backup_at)
    meta.drop(conn, COMPUTER)


def _conclude(conn: Connection, job: str, why: str, now: float) -> None:
    world = repository.load_world(conn, job)
    assert world is not None, "read a moment ago, in the same transaction"
    step = Step(world)
    while (attempt := step.world.live) is not None:
        told = {"attempt": attempt.number, "reason": Reason.MACHINE_LOST.value, "detail": why}
        slots = tuple(replace(slot, ended=True) for slot in attempt.slots)
        ended = replace(attempt, state=AttemptState.ENDED, slots=slots, reason=Reason.MACHINE_LOST, detail=why)
        after = step.world.with_attempt(replace(ended, ended_at=now))
        step = step.then(Step(after, (Event("attempt_ended", told),)))
    repository.save_step(conn, world, step.then(end_job(step.world, _reason(world), why, now)), now)


def _reason(world: World) -> Reason:
    """What nobody had begun is called off; what ran is lost to us."""
    return Reason.CANCELLED if world.live is None else Reason.MACHINE_LOST


def _close_bills(conn: Connection, backup_at: float) -> None:
    """What was spent since the backup is on the other deployment's bill."""
    c = t.price_segments.c
    ends_at = case((c.starts_at > backup_at, c.starts_at), else_=backup_at)
    conn.execute(update(t.price_segments).where(c.ends_at.is_(None)).values(ends_at=ends_at))
