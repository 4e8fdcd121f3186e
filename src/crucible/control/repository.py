"""Worlds in the database: loaded whole, saved with a version check.

Functions of a Connection, for use inside `db.write` and `db.read`. `Stale` means that someone else decided
meanwhile: the whole function is run again on what is true now.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from sqlalchemy import Connection, RowMapping, insert, select, update

from crucible.control import codec
from crucible.control.db import schema as t
from crucible.core.errors import Conflict
from crucible.core.lifecycle import Attempt, Effect, Event, Job, Machine, MachineState, Step, World


class Stale(Conflict):
    """The row has another version than the one this decision was made on."""

    code = "stale"


def load_world(conn: Connection, job_id: str) -> World | None:
    row = conn.execute(select(t.jobs).where(t.jobs.c.id == job_id)).mappings().first()
    if row is None:
        return None
    attempts = load_attempts(conn, job_id)
    return World(codec.job_of(row), attempts, load_machines(conn, {s.machine for a in attempts for s in a.slots}))


def load_attempts(conn: Connection, job_id: str) -> tuple[Attempt, ...]:
    query = select(t.attempts).where(t.attempts.c.job == job_id).order_by(t.attempts.c.number)
    rows = conn.execute(query).mappings().all()
    if not rows:
        return ()
    found = conn.execute(
        select(t.slots).where(t.slots.c.attempt.in_([r["id"] for r in rows])).order_by(t.slots.c.rank)
    ).mappings()
    by_attempt: dict[str, list[RowMapping]] = {}
    for slot in found:
        by_attempt.setdefault(slot["attempt"], []).append(slot)
    return tuple(codec.attempt_of(r, by_attempt.get(r["id"], [])) for r in rows)


def load_machines(conn: Connection, ids: Iterable[str]) -> dict[str, Machine]:
    wanted = list(ids)
    if not wanted:
        return {}
    rows = conn.execute(select(t.machines).where(t.machines.c.id.in_(wanted))).mappings()
    return {row["id"]: codec.machine_of(row) for row in rows}


def load_machine(conn: Connection, machine_id: str) -> Machine | None:
    return load_machines(conn, [machine_id]).get(machine_id)


def insert_job(conn: Connection, step: Step, now: float) -> World:
    """Stores a new job with its first events."""
    job = step.world.job
    conn.execute(insert(t.jobs).values(codec.job_row(job)))
    return save_step(conn, World(job), step, now)


def save_step(conn: Connection, before: World, step: Step, now: float) -> World:
    """Writes what changed between `before` and the step's world, its events and effects. Raises Stale."""
    world = step.world
    numbered = world.with_job(events=before.job.events + len(step.events))
    same = numbered.job == before.job and world.attempts == before.attempts
    job = before.job if same else _save_job(conn, before.job, numbered.job)
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
    saved = _save_machine(conn, before, after, now)
    add_effects(conn, effects, now)
    return saved


def _save_job(conn: Connection, before: Job, after: Job) -> Job:
    """The job's version guards its attempts too, so it rises whenever one of them changes."""
    values = {**codec.job_changes(after), "version": before.version + 1}
    done = conn.execute(
        update(t.jobs).where(t.jobs.c.id == before.id, t.jobs.c.version == before.version).values(values)
    )
    if done.rowcount != 1:
        raise Stale(f"Job {before.id} changed meanwhile.", fix="Read it again and decide again.")
    return replace(after, version=before.version + 1)


def _save_attempt(conn: Connection, before: World, attempt: Attempt) -> None:
    known = next((a for a in before.attempts if a.id == attempt.id), None)
    if known == attempt:
        return
    if known is None:
        conn.execute(insert(t.attempts).values(codec.attempt_row(attempt)))
        conn.execute(insert(t.slots), [codec.slot_row(attempt.id, slot) for slot in attempt.slots])
        return
    conn.execute(update(t.attempts).where(t.attempts.c.id == attempt.id).values(codec.attempt_row(attempt)))
    for slot, old in zip(attempt.slots, known.slots, strict=True):
        if slot != old:
            where = (t.slots.c.attempt == attempt.id, t.slots.c.rank == slot.rank)
            conn.execute(update(t.slots).where(*where).values(ended=slot.ended))


def _save_machine(
    conn: Connection, before: Machine | None, after: Machine, now: float, *, touched: bool = False
) -> Machine:
    """`touched`: its desired document changed. Its version rises too, for decisions that rely on it."""
    if after == before and not touched:
        return after
    saved = replace(after, version=after.version + 1)
    if before is None:
        conn.execute(insert(t.machines).values(codec.machine_row(saved)))
        return saved
    values = codec.machine_row(saved)
    if touched:
        values["desired_version"] = t.machines.c.desired_version + 1
    mine = (t.machines.c.id == before.id, t.machines.c.version == before.version)
    if conn.execute(update(t.machines).where(*mine).values(values)).rowcount != 1:
        raise Stale(f"Machine {before.id} changed meanwhile.", fix="Read it again and decide again.")
    _save_price(conn, before, saved, now)
    return saved


def _save_price(conn: Connection, before: Machine, after: Machine, now: float) -> None:
    """A machine costs from the moment its place answered until it is gone."""
    segments = t.price_segments
    if before.native_id is None and after.native_id is not None:
        first = {"machine": after.id, "n": 0, "starts_at": now, "ends_at": None, "rate": after.rate, "native_id": ""}
        conn.execute(insert(segments).values(first))
    if before.gone_at is None and after.gone_at is not None:
        conn.execute(
            update(segments)
            .where(segments.c.machine == after.id, segments.c.ends_at.is_(None))
            .values(ends_at=after.gone_at)
        )
    if after.state is MachineState.GONE and before.state is not MachineState.GONE:
        _look_again(conn, after.id, now)


def _look_again(conn: Connection, machine_id: str, now: float) -> None:
    """The jobs on a machine that went away are due."""
    affected = (
        select(t.attempts.c.job)
        .join(t.slots, t.slots.c.attempt == t.attempts.c.id)
        .where(t.slots.c.machine == machine_id, t.slots.c.ended.is_(False))
    )
    due = {"due_at": now, "version": t.jobs.c.version + 1}
    conn.execute(update(t.jobs).where(t.jobs.c.id.in_(affected)).values(due))


def _add_events(conn: Connection, job: Job, already: int, events: Iterable[Event], now: float) -> None:
    rows = [
        {"job": job.id, "n": already + i, "type": e.type, "at": now, "data": json.dumps(dict(e.data))}
        for i, e in enumerate(events, start=1)
    ]
    if rows:
        conn.execute(insert(t.events), rows)


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
        conn.execute(insert(t.effects), rows)
