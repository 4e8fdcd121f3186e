"""Queries: what the faces ask for, read in one snapshot each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, select

from crucible.control import checkpoints, codec, health, labels, points, repository
from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement
from crucible.control.queue import first_in_turn
from crucible.control.views import MOST_AHEAD, View, event_view, job_view, machine_view
from crucible.core.errors import Conflict, CrucibleError, Forbidden, NotFound
from crucible.core.ids import is_id, short
from crucible.core.lifecycle import Job, JobState, MachineState, World
from crucible.core.people import OWNER, Identity, Permission
from crucible.core.pricing import Segment
from crucible.core.spec import JobSpec
from crucible.core.states import Status, states_of
from crucible.core.views.places import MachinePage, MachineView

LARGEST_PAGE = 500
TERMINAL = tuple(s.value for s in JobState if s.terminal)
ACTIVE = tuple(s.value for s in JobState if not s.terminal)

Details = Mapping[str, Mapping[str, object]]
"""By the attempt."""

_j = t.jobs.c
_ID = Statement(select(_j.id, _j.project).where(_j.id == bindparam("job")))
_c, _ck = t.attempts.c, t.checkpoints.c
_DETAILS = Statement(
    select(_c.id, _c.progress, _c.facts, _ck.id.label("checkpoint"), _ck.name, _ck.step)
    .join(t.checkpoints, _ck.id == _c.resume_from, isouter=True)
    .where(_c.id.in_(bindparam("attempts", expanding=True)))
)
_LAST_ATTEMPT = Statement(select(_c.id).where(_c.job == bindparam("of_job")).order_by(_c.number.desc()).limit(1))
_SEGMENTS = Statement(
    select(t.price_segments)
    .where(t.price_segments.c.machine.in_(bindparam("machines", expanding=True)))
    .order_by(t.price_segments.c.machine, t.price_segments.c.n)
)


def find_job(conn: Connection, ref: str, who: Identity = OWNER) -> Found:
    """The job for what a person typed: an id, an ending of one, or `last`; of those that he may see.

    Endings are found by index: the id is also stored backwards.
    """
    c = t.jobs.c
    if ref == "last":
        newest = _seen(select(c.id, c.project), who).order_by(c.id.desc()).limit(1)
        found = [Found(*row) for row in conn.execute(newest)]
    elif is_id(ref):
        found = [Found(row["id"], row["project"]) for row in _ID.all(conn, job=ref)]
    else:
        ending = ref.lower().removeprefix("job-")
        if len(ending) < 3 or not ending.isalnum():
            raise NotFound(f"{ref!r} names no job.", fix="`crucible jobs` lists them; three characters are enough.")
        first = ending[::-1]
        near = (c.backwards >= first, c.backwards < first + "~")
        fitting = _seen(select(c.id, c.project).where(*near), who).order_by(c.id.desc()).limit(5)
        found = [Found(*row) for row in conn.execute(fitting)]
    found = [job for job in found if _sees(who, job)]
    if not found:
        raise NotFound(f"There is no job {ref!r}.", fix="`crucible jobs` lists them.", id=ref)
    if len(found) > 1:
        several = [short(job.id) for job in found]
        raise Conflict(f"{ref!r} fits several jobs.", fix="Type more of the id.", candidates=several)
    return found[0]


@dataclass(frozen=True)
class Found:
    """A job, and the project that decides who may do what with it."""

    id: str
    project: str


def _sees(who: Identity, job: Found) -> bool:
    return who.may(Permission.READ, job.project) and who.job in (None, job.id)


def _seen(query: Select[Any], who: Identity) -> Select[Any]:
    """Only jobs that he may see."""
    projects = who.projects(Permission.READ)
    if projects is not None:
        query = query.where(_j.project.in_(projects))
    return query if who.job is None else query.where(_j.id == who.job)


def try_to_find(conn: Connection, ref: str, who: Identity, permission: Permission) -> str | CrucibleError:
    """The id of a job with which he may do that; the errors are answers too."""
    try:
        found = find_job(conn, ref, who)
        who.need(permission, found.project)
    except (NotFound, Conflict, Forbidden) as error:
        return error
    return found.id


def one_job(conn: Connection, job: str, now: float) -> View:
    world = existing(conn, job)
    return shown(conn, world, details_of(conn, [a.id for a in world.attempts]), now)


def job_health(conn: Connection, job: str, now: float) -> View:
    """How a job does, judged from what is stored of it."""
    world = existing(conn, job)
    return judged(conn, world, details_of(conn, [a.id for a in world.attempts[-1:]]), now)


def existing(conn: Connection, job: str) -> World:
    world = repository.load_world(conn, job)
    if world is None:
        raise NotFound(f"There is no job {short(job)}.", fix="`crucible jobs` lists them.")
    return world


def shown(conn: Connection, world: World, details: Details, now: float) -> View:
    """The job of this world, `details` being those of all its attempts."""
    job = world.job
    ahead = jobs_ahead(conn, [job]).get(job.id, 0)
    newest = checkpoints.newest_of(conn, job.id)
    called = labels.of(conn, [job.id]).get(job.id)
    return job_view(world, details, segments_of(conn, world.machines), ahead, now, newest, called)


def judged(conn: Connection, world: World, details: Details, now: float) -> View:
    """How it does, by what its last attempt told and all that is stored of it."""
    last = world.attempts[-1].id if world.attempts else ""
    return health.job_health(conn, world, details.get(last, {}).get("progress"), now)


def list_events(conn: Connection, job: str | None, after: int, limit: int, who: Identity = OWNER) -> list[View]:
    """One job's events by their number, or by cursor those of all jobs that he may see."""
    c = t.events.c
    query = select(t.events).limit(min(max(limit, 1), 1000))
    if job is None:
        query = query.where(c.cursor > after).order_by(c.cursor)
        if who.projects(Permission.READ) is not None or who.job is not None:
            query = _seen(query.join(t.jobs, _j.id == c.job), who)
    else:
        query = query.where(c.job == job, c.n > after).order_by(c.n)
    rows = conn.execute(query).mappings().all()
    return [event_view(dict(row), with_job=job is None) for row in rows]


def list_checkpoints(conn: Connection, job: str) -> list[View]:
    """Newest first, also those that are no longer kept."""
    spec = conn.execute(select(t.jobs.c.spec).where(t.jobs.c.id == job)).scalar_one()
    higher = JobSpec.model_validate_json(spec).keep.higher_is_better
    return checkpoints.listed(conn, job, higher_is_better=higher)


def list_artifacts(conn: Connection, job: str) -> list[View]:
    """The newest of each path, over all attempts."""
    c = t.artifacts.c
    rows = conn.execute(
        select(c.path, c.size, c.sha256, c.attempt, t.attempts.c.number)
        .join(t.attempts, t.attempts.c.id == c.attempt)
        .where(c.job == job)
        .order_by(t.attempts.c.number, c.path)
    ).all()
    newest = {
        r.path: {
            "path": r.path,
            "size": r.size,
            "sha256": r.sha256,
            "attempt": r.number,
            "attempt_id": r.attempt,
        }
        for r in rows
    }
    return [newest[path] for path in sorted(newest)]


def metrics(conn: Connection, job: str, names: Sequence[str], most: int) -> View:
    """The series of the latest attempt that reported any."""
    for attempt in reversed(repository.load_attempts(conn, job)):
        found = points.read(conn, attempt.id, names, most)
        if found:
            return {"attempt": attempt.number, "series": {name: _series_view(s) for name, s in found.items()}}
    return {"attempt": None, "series": {}}


def latest_metrics(conn: Connection, job: str) -> dict[str, float | None]:
    """The last value of each series of its last attempt."""
    attempt = _LAST_ATTEMPT.value(conn, of_job=job)
    return points.latest(conn, attempt) if attempt else {}


def one_machine(conn: Connection, machine: str, now: float) -> MachineView:
    row = repository.load_machine(conn, machine)
    if row is None:
        raise NotFound(f"There is no machine {short(machine)}.", fix="`crucible machines --all` lists them.")
    return machine_view(row, segments_of(conn, [machine]).get(machine, ()), now)


def list_machines(conn: Connection, now: float, *, gone_too: bool = True, who: Identity = OWNER) -> MachinePage:
    """Newest first: all, or those that jobs run on that he may see."""
    query = select(t.machines).order_by(t.machines.c.id.desc()).limit(LARGEST_PAGE)
    if not who.may(Permission.OPERATE):
        used = select(t.slots.c.machine).join(t.attempts, _c.id == t.slots.c.attempt).join(t.jobs, _j.id == _c.job)
        query = query.where(t.machines.c.id.in_(_seen(used, who)))
    if not gone_too:
        query = query.where(t.machines.c.state != MachineState.GONE.value)
    machines = [codec.machine_of(row) for row in conn.execute(query).mappings().all()]
    prices = segments_of(conn, [m.id for m in machines])
    return MachinePage(items=tuple(machine_view(m, prices.get(m.id, ()), now) for m in machines))


@dataclass(frozen=True)
class Counts:
    """Jobs that run and that wait, of those that the caller may see; machines that bill, of the whole deployment."""

    running: int
    queued: int
    billing: int


def counts(conn: Connection, who: Identity = OWNER) -> Counts:
    c = t.jobs.c
    counted = _seen(select(c.state, func.count().label("n")).where(c.state.in_(ACTIVE)), who).group_by(c.state)
    by_state = {r.state: r.n for r in conn.execute(counted).all()}
    billing = select(func.count()).where(
        t.machines.c.state != MachineState.GONE.value, t.machines.c.bills.is_(True), t.machines.c.rate > 0
    )
    return Counts(
        running=sum(by_state.get(s.value, 0) for s in states_of(Status.RUNNING)),
        queued=sum(by_state.get(s.value, 0) for s in states_of(Status.QUEUED)),
        billing=conn.execute(billing).scalar() or 0,
    )


def segments_of(conn: Connection, machines: Iterable[str]) -> dict[str, list[Segment]]:
    wanted = list(machines)
    if not wanted:
        return {}
    found: dict[str, list[Segment]] = {}
    for row in _SEGMENTS.all(conn, machines=wanted):
        segment = Segment(row["starts_at"], row["ends_at"], row["rate"], row["native_id"])
        found.setdefault(row["machine"], []).append(segment)
    return found


def details_of(conn: Connection, attempts: Sequence[str]) -> dict[str, dict[str, object]]:
    if not attempts:
        return {}
    return {
        row["id"]: {
            "progress": json.loads(row["progress"]) if row["progress"] else None,
            "facts": json.loads(row["facts"]),
            "resume_from": _resume_view(row) if row["checkpoint"] else None,
        }
        for row in _DETAILS.all(conn, attempts=attempts)
    }


def _resume_view(row: Row) -> View:
    return {"id": row["checkpoint"], "short": short(row["checkpoint"]), "name": row["name"], "step": row["step"]}


def jobs_ahead(conn: Connection, jobs: Iterable[Job]) -> dict[str, int]:
    """How many are before each that waits, up to one more than is told; each queue is read once."""
    waiting = [job for job in jobs if job.state is JobState.QUEUED]
    found: dict[str, int] = {}
    for backend in {job.backend for job in waiting}:
        turns = {queued.job: n for n, queued in enumerate(first_in_turn(conn, backend, MOST_AHEAD + 1))}
        found |= {job.id: turns.get(job.id, MOST_AHEAD + 1) for job in waiting if job.backend == backend}
    return found


def _series_view(series: points.Series) -> View:
    return {
        "count": series.count,
        "last": series.last,
        "min": series.low,
        "max": series.high,
        "points": [list(p) for p in series.points],
    }
