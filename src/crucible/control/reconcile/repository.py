"""Load and save worlds (a job, its attempts and their machines), with a check of versions.

All functions take a Connection, inside `db.write` or `db.read`. `Stale` means that another writer was faster: the
Writer runs the whole function again on the new rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, func, select, update

from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement, insert_row
from crucible.control.jobs import labels
from crucible.control.reconcile import codec
from crucible.core.errors import Conflict
from crucible.core.lifecycle import Attempt, Effect, Event, Job, Machine, MachineState, Step, World

_JOB = Statement(select(t.jobs).where(t.jobs.c.id == bindparam("job")))
_ATTEMPTS = Statement(select(t.attempts).where(t.attempts.c.job == bindparam("job")).order_by(t.attempts.c.number))
_SLOTS = Statement(
    select(t.slots).where(t.slots.c.attempt.in_(bindparam("attempts", expanding=True))).order_by(t.slots.c.rank)
)
_GANG = Statement(
    select(t.machines)
    .join(t.slots, t.slots.c.machine == t.machines.c.id)
    .where(t.machines.c.gang == bindparam("gang"))
    .order_by(t.slots.c.rank)
)
_MACHINES = Statement(select(t.machines).where(t.machines.c.id.in_(bindparam("machines", expanding=True))))


def _bind_columns(columns: Iterable[str]) -> dict[str, BindParameter[Any]]:
    return {name: bindparam(name) for name in columns}


_ADD_JOB = Statement(insert_row(t.jobs, codec.JOB_COLUMNS))
_SAVE_JOB = Statement(
    update(t.jobs)
    .where(t.jobs.c.id == bindparam("job"), t.jobs.c.version == bindparam("known"))
    .values(_bind_columns([*codec.JOB_CHANGES, "version"]))
)
_ADD_ATTEMPT = Statement(insert_row(t.attempts, codec.ATTEMPT_COLUMNS))
_SAVE_ATTEMPT = Statement(
    update(t.attempts).where(t.attempts.c.id == bindparam("attempt")).values(_bind_columns(codec.ATTEMPT_CHANGES))
)
_ADD_SLOT = Statement(insert_row(t.slots, codec.SLOT_COLUMNS))
_SAVE_SLOT = Statement(
    update(t.slots)
    .where(t.slots.c.attempt == bindparam("its_attempt"), t.slots.c.rank == bindparam("its_rank"))
    .values(ended=bindparam("ended"), reason=bindparam("reason"))
)
_ADD_MACHINE = Statement(insert_row(t.machines, codec.MACHINE_COLUMNS))
_MINE = (t.machines.c.id == bindparam("machine"), t.machines.c.version == bindparam("known"))
_SAVE_MACHINE = Statement(
    update(t.machines)
    .where(*_MINE)
    .values(
        {**_bind_columns(codec.MACHINE_CHANGES), "desired_version": t.machines.c.desired_version + bindparam("touched")}
    )
)
_ADD_PRICE = Statement(insert_row(t.price_segments, ["machine", "n", "starts_at", "ends_at", "rate", "native_id"]))
_p = t.price_segments.c
_IS_METERED = Statement(
    select(_p.n).where(_p.machine == bindparam("machine"), _p.native_id == bindparam("native_id")).limit(1)
)
_NEXT_PRICE = Statement(select(func.coalesce(func.max(_p.n) + 1, 0)).where(_p.machine == bindparam("machine")))
_MOVE_PRICE = Statement(
    update(t.price_segments)
    .where(t.price_segments.c.machine == bindparam("its_machine"), t.price_segments.c.native_id == "")
    .values(starts_at=bindparam("starts_at"))
)
_END_PRICE = Statement(
    update(t.price_segments)
    .where(t.price_segments.c.machine == bindparam("its_machine"), t.price_segments.c.ends_at.is_(None))
    .values(ends_at=bindparam("ends_at"))
)
_MAKE_JOBS_DUE = Statement(
    update(t.jobs)
    .where(
        t.jobs.c.id.in_(
            select(t.attempts.c.job)
            .join(t.slots, t.slots.c.attempt == t.attempts.c.id)
            .where(t.slots.c.machine == bindparam("machine"), t.slots.c.ended.is_(False))
        )
    )
    .values(due_at=bindparam("due_at"), version=t.jobs.c.version + 1)
)
_ADD_EVENT = Statement(insert_row(t.events, ["job", "n", "type", "at", "data"]))
_ADD_EFFECT = Statement(insert_row(t.effects, ["machine", "kind", "done", "tries", "not_before", "created_at"]))


class Stale(Conflict):
    """The row has changed since it was read for this decision."""

    code = "stale"


def load_world(conn: Connection, job_id: str) -> World | None:
    row = _JOB.first(conn, job=job_id)
    if row is None:
        return None
    attempts = load_attempts(conn, job_id)
    return World(codec.job_from_row(row), attempts, load_machines(conn, {s.machine for a in attempts for s in a.slots}))


def load_attempts(conn: Connection, job_id: str) -> tuple[Attempt, ...]:
    rows = _ATTEMPTS.all(conn, job=job_id)
    if not rows:
        return ()
    by_attempt: dict[str, list[Row]] = {}
    for slot in _SLOTS.all(conn, attempts=[row["id"] for row in rows]):
        by_attempt.setdefault(slot["attempt"], []).append(slot)
    return tuple(codec.attempt_from_row(r, by_attempt.get(r["id"], [])) for r in rows)


def load_machines(conn: Connection, ids: Iterable[str]) -> dict[str, Machine]:
    wanted = list(ids)
    if not wanted:
        return {}
    return {row["id"]: codec.machine_from_row(row) for row in _MACHINES.all(conn, machines=wanted)}


def load_gang(conn: Connection, machine: Machine) -> list[Machine]:
    """Return the machines that the launch of this one makes, by rank: itself alone, or its gang."""
    if machine.gang is None:
        return list(load_machines(conn, [machine.id]).values())
    return [codec.machine_from_row(row) for row in _GANG.all(conn, gang=machine.gang)]


def load_machine(conn: Connection, machine_id: str) -> Machine | None:
    return load_machines(conn, [machine_id]).get(machine_id)


def insert_job(conn: Connection, step: Step, now: float) -> World:
    """Store a new job with its first events and its labels."""
    before = step.world.job.events
    world = step.world.with_job(events=before + len(step.events))
    _ADD_JOB.run(conn, **codec.job_row(world.job))
    labels.add_listing(conn, world.job)
    _add_events(conn, world.job, before, step.events, now)
    add_effects(conn, step.effects, now)
    return world


def save_step(conn: Connection, before: World, step: Step, now: float) -> World:
    """Write what changed between `before` and the step's world, with its events and effects. Raises Stale."""
    world = step.world
    numbered = world.with_job(events=before.job.events + len(step.events))
    unchanged = numbered.job == before.job and world.attempts == before.attempts
    job = before.job if unchanged else _save_job(conn, before.job, numbered.job)
    for attempt in world.attempts:
        _save_attempt(conn, before, attempt)
    machines = {
        m.id: _save_machine(conn, before.machines.get(m.id), m, now, touched=m.id in step.touched)
        for m in world.machines.values()
    }
    _add_events(conn, job, before.job.events, step.events, now)
    add_effects(conn, step.effects, now)
    return World(job, world.attempts, machines)


def save_machine(conn: Connection, before: Machine, after: Machine, effects: Iterable[Effect], now: float) -> Machine:
    """Store what a fact about the machine changed. Raises Stale."""
    saved = _save_machine(conn, before, after, now)
    _wake_jobs(conn, before, saved, now)
    add_effects(conn, effects, now)
    return saved


def _save_job(conn: Connection, before: Job, after: Job) -> Job:
    """Save the job. Its version also guards its attempts, so it increases when one of them changes."""
    values = {**codec.job_changes(after), "version": before.version + 1}
    if _SAVE_JOB.run(conn, job=before.id, known=before.version, **values) != 1:
        raise Stale(f"Job {before.id} changed meanwhile.", fix="Read it again and decide again.")
    return replace(after, version=before.version + 1)


def _save_attempt(conn: Connection, before: World, attempt: Attempt) -> None:
    known = next((a for a in before.attempts if a.id == attempt.id), None)
    if known == attempt:
        return
    if known is None:
        _ADD_ATTEMPT.run(conn, **codec.attempt_row(attempt))
        _ADD_SLOT.run_each(conn, [codec.slot_row(attempt.id, slot) for slot in attempt.slots])
        return
    _SAVE_ATTEMPT.run(conn, attempt=attempt.id, **codec.attempt_changes(attempt))
    for slot, old in zip(attempt.slots, known.slots, strict=True):
        if slot != old:
            reason = slot.reason.value if slot.reason else None
            _SAVE_SLOT.run(conn, its_attempt=attempt.id, its_rank=slot.rank, ended=slot.ended, reason=reason)


def _save_machine(
    conn: Connection, before: Machine | None, after: Machine, now: float, *, touched: bool = False
) -> Machine:
    """Save the machine. `touched`: its desired document changed, so its version increases even if the row is equal."""
    if after == before and not touched:
        return after
    saved = replace(after, version=after.version + 1)
    if before is None:
        _ADD_MACHINE.run(conn, **codec.machine_row(saved))
        return saved
    mine = {"machine": before.id, "known": before.version, "touched": int(touched)}
    if _SAVE_MACHINE.run(conn, **mine, **codec.machine_changes(saved)) != 1:
        raise Stale(f"Machine {before.id} changed meanwhile.", fix="Read it again and decide again.")
    _save_price(conn, before, saved, now)
    return saved


def _save_price(conn: Connection, before: Machine, after: Machine, now: float) -> None:
    """Start and end our own count of the machine's cost.

    It begins when the launch was sent that made the machine, or when the machine left its provider's queue; it ends
    when the machine is gone.
    """
    since = _billed_since(after, now)
    # Not if the provider's meter has a segment of this instance already: that replaces our own count.
    if since is not None and _billed_since(before, now) is None and not _is_metered(conn, after):
        n = _NEXT_PRICE.value(conn, machine=after.id)
        first = {"machine": after.id, "n": n, "starts_at": since, "ends_at": None, "rate": after.rate, "native_id": ""}
        _ADD_PRICE.run(conn, **first)
    elif since is not None and after.started_at != before.started_at:
        _MOVE_PRICE.run(conn, its_machine=after.id, starts_at=since)
    if before.gone_at is None and after.gone_at is not None:
        _END_PRICE.run(conn, its_machine=after.id, ends_at=after.gone_at)


def _billed_since(machine: Machine, now: float) -> float | None:
    """Return since when the machine costs money; None while it is not known to exist, or waits at its provider."""
    if machine.native_id is None or machine.started_at is None:
        return None
    return max(machine.started_at, now if machine.launched_at is None else machine.launched_at)


def _is_metered(conn: Connection, machine: Machine) -> bool:
    return _IS_METERED.value(conn, machine=machine.id, native_id=machine.native_id) is not None


def _wake_jobs(conn: Connection, before: Machine, after: Machine, now: float) -> None:
    """Make the machine's jobs due once it is gone, and when its place in its provider's queue changes."""
    # The versions of these jobs increase too, so decisions made while the machine was alive are stale.
    went = before.alive and not after.alive
    queued = MachineState.QUEUED in (before.state, after.state)
    if went or (queued and (before.state, before.detail) != (after.state, after.detail)):
        _MAKE_JOBS_DUE.run(conn, machine=after.id, due_at=now)


def _add_events(conn: Connection, job: Job, already: int, events: Iterable[Event], now: float) -> None:
    rows = [
        {"job": job.id, "n": already + i, "type": e.type, "at": now, "data": json.dumps(dict(e.data))}
        for i, e in enumerate(events, start=1)
    ]
    if rows:
        _ADD_EVENT.run_each(conn, rows)


def add_effects(conn: Connection, effects: Iterable[Effect], now: float) -> None:
    rows = [
        {
            "machine": e.machine,
            "kind": e.kind.value,
            "done": False,
            "tries": 0,
            "not_before": now,
            "created_at": now,
        }
        for e in effects
    ]
    if rows:
        _ADD_EFFECT.run_each(conn, rows)
