"""Views of many jobs, read with a fixed number of statements for any number of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sqlalchemy import Connection, bindparam, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement
from crucible.control.jobs import labels
from crucible.control.jobs.views import MAX_AHEAD, AttemptDetails, job_view, stored_json
from crucible.control.objects import checkpoints
from crucible.control.reconcile import codec, repository
from crucible.control.scheduling.queue import first_in_queue, queue_name
from crucible.core.compute.pricing import Segment
from crucible.core.lifecycle import Attempt, EffectKind, Job, JobState, World
from crucible.core.scheduling.candidates import backends_of
from crucible.core.views.jobs import JobView, ProgressView

CHUNK = 512
_SIZES = (1, 8, 64, CHUNK)
"""A statement is compiled for each length of a list, so lists are padded to these lengths."""

_j, _a, _s, _k = t.jobs.c, t.attempts.c, t.slots.c, t.checkpoints.c
_JOBS = Statement(select(t.jobs).where(_j.id.in_(bindparam("jobs", expanding=True))))
_ATTEMPTS = Statement(
    select(t.attempts).where(_a.job.in_(bindparam("jobs", expanding=True))).order_by(_a.job, _a.number)
)
_SLOTS = Statement(select(t.slots).where(_s.attempt.in_(bindparam("attempts", expanding=True))).order_by(_s.rank))
_DETAILS = Statement(
    select(_a.id.label("attempt"), _a.progress, _a.facts, _k.id, _k.name, _k.step)
    .join(t.checkpoints, _k.id == _a.resume_from, isouter=True)
    .where(_a.id.in_(bindparam("attempts", expanding=True)))
)
_SEGMENTS = Statement(
    select(t.price_segments)
    .where(t.price_segments.c.machine.in_(bindparam("machines", expanding=True)))
    .order_by(t.price_segments.c.machine, t.price_segments.c.n)
)
_e = t.effects.c
_ERRORS = Statement(
    select(_e.machine, _e.error).where(
        _e.done.is_(False),
        _e.kind == EffectKind.TERMINATE.value,
        _e.error.is_not(None),
        _e.machine.in_(bindparam("machines", expanding=True)),
    )
)


def job_views(conn: Connection, ids: Sequence[str], now: float) -> list[JobView]:
    """Return views of the jobs in the order of `ids`, without those that do not exist."""
    return [view for chunk in _chunks(ids) for view in _views(conn, chunk, now)]


def _views(conn: Connection, ids: Sequence[str], now: float) -> Iterator[JobView]:
    jobs = pad_ids(ids)
    worlds = load_worlds(conn, jobs)
    attempts = [attempt.id for world in worlds.values() for attempt in world.attempts]
    details = {
        id: detail for chunk in _chunks(attempts) for id, detail in attempt_details(conn, pad_ids(chunk)).items()
    }
    prices = _prices(conn, {machine for world in worlds.values() for machine in world.machines})
    newest, named = checkpoints.newest_marks(conn, jobs), labels.labels_by_job(conn, jobs)
    ahead = count_ahead(conn, [world.job for world in worlds.values()])
    for job in ids:
        if world := worlds.get(job):
            yield job_view(world, details, prices, ahead.get(job, 0), now, newest.get(job), named.get(job))


def price_segments(conn: Connection, machines: Iterable[str]) -> dict[str, list[Segment]]:
    ids = list(machines)
    if not ids:
        return {}
    segments: dict[str, list[Segment]] = {}
    for row in _SEGMENTS.all(conn, machines=ids):
        segment = Segment(row["starts_at"], row["ends_at"], row["rate"], row["native_id"])
        segments.setdefault(row["machine"], []).append(segment)
    return segments


def termination_errors(conn: Connection, machines: Iterable[str]) -> dict[str, str]:
    """Return why the last call to terminate a machine failed, for those that do not end."""
    ids = list(machines)
    return {row["machine"]: row["error"] for row in _ERRORS.all(conn, machines=ids)} if ids else {}


def attempt_details(conn: Connection, attempts: Sequence[str]) -> dict[str, AttemptDetails]:
    if not attempts:
        return {}
    return {
        row["attempt"]: AttemptDetails(
            progress=ProgressView(**stored_json(row["progress"])) if row["progress"] else None,
            facts=stored_json(row["facts"]),
            resume_from=checkpoints.to_mark(row) if row["id"] else None,
        )
        for row in _DETAILS.all(conn, attempts=attempts)
    }


def pad_ids(items: Sequence[str]) -> list[str]:
    """Repeat the last item up to one of a few lengths, for an `IN` that finds the same rows."""
    size = next(size for size in _SIZES if size >= len(items))
    return [*items, *[items[-1]] * (size - len(items))] if items else []


def _chunks(items: Sequence[str]) -> Iterator[Sequence[str]]:
    return (items[at : at + CHUNK] for at in range(0, len(items), CHUNK))


def load_worlds(conn: Connection, jobs: list[str]) -> dict[str, World]:
    """Return the worlds of these jobs, which may repeat."""
    attempts = _load_attempts(conn, jobs)
    held = {slot.machine for of_job in attempts.values() for attempt in of_job for slot in attempt.slots}
    machines = {
        id: machine
        for chunk in _chunks(sorted(held))
        for id, machine in repository.load_machines(conn, pad_ids(chunk)).items()
    }
    worlds = {}
    for row in _JOBS.all(conn, jobs=jobs):
        own = tuple(attempts.get(row["id"], ()))
        used = {slot.machine for attempt in own for slot in attempt.slots}
        worlds[row["id"]] = World(codec.job_from_row(row), own, {id: machines[id] for id in used if id in machines})
    return worlds


def _load_attempts(conn: Connection, jobs: list[str]) -> dict[str, list[Attempt]]:
    rows = _ATTEMPTS.all(conn, jobs=jobs)
    slots: dict[str, list[Row]] = {}
    for chunk in _chunks([row["id"] for row in rows]):
        for slot in _SLOTS.all(conn, attempts=pad_ids(chunk)):
            slots.setdefault(slot["attempt"], []).append(slot)
    attempts: dict[str, list[Attempt]] = {}
    for row in rows:
        attempts.setdefault(row["job"], []).append(codec.attempt_from_row(row, slots.get(row["id"], [])))
    return attempts


def _prices(conn: Connection, machines: Iterable[str]) -> Mapping[str, list[Segment]]:
    ids = sorted(machines)
    return {name: segments for chunk in _chunks(ids) for name, segments in price_segments(conn, pad_ids(chunk)).items()}


def count_ahead(conn: Connection, jobs: Iterable[Job]) -> dict[str, int]:
    """Return how many jobs are ahead of each that waits, at most MAX_AHEAD + 1; each queue is read once."""
    waiting = [job for job in jobs if job.state is JobState.QUEUED]
    ahead: dict[str, int] = {}
    queues = {job.id: queue_name(backends_of(job.candidates)) for job in waiting}
    for queue in set(queues.values()):
        turns = {job: n for n, job in enumerate(first_in_queue(conn, queue, MAX_AHEAD + 1))}
        ahead |= {job: turns.get(job, MAX_AHEAD + 1) for job, name in queues.items() if name == queue}
    return ahead
