"""Queries for the resources, each reading one snapshot of the database."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.jobs import bulk_views, labels, notes, results
from crucible.control.jobs.views import (
    Details,
    event_view,
    job_view,
    machine_view,
)
from crucible.control.objects import checkpoints
from crucible.control.objects.bundles import StoredFile
from crucible.control.reconcile import codec, repository
from crucible.control.telemetry import health, points
from crucible.core.errors import Conflict, CrucibleError, Forbidden, NotFound
from crucible.core.ids import is_id, short
from crucible.core.job.spec import JobSpec
from crucible.core.job.states import Status, states_of
from crucible.core.lifecycle import JobState, MachineState, World
from crucible.core.people.identity import OWNER, Identity, Permission
from crucible.core.views.compute import MachinePage, MachineView
from crucible.core.views.jobs import CheckpointPage, HealthView, JobView
from crucible.core.views.records import ArtifactPage, ArtifactView, EventPage, MetricsView, SeriesView
from crucible.storage.layout import artifact_key, output_key
from crucible.wire.files.paths import UnsafePath

MAX_PAGE = 500
TERMINAL_STATES = tuple(s.value for s in JobState if s.terminal)
ACTIVE_STATES = tuple(s.value for s in JobState if not s.terminal)

_j = t.jobs.c
_ID = Statement(select(_j.id, _j.project).where(_j.id == bindparam("job")))
_c = t.attempts.c
_file = t.artifacts.c
_ARTIFACT = Statement(
    select(_file.attempt, _file.size, _file.sha256, _file.hashed)
    .join(t.attempts, _c.id == _file.attempt)
    .where(_file.job == bindparam("job"), _file.path == bindparam("path"))
    .order_by(_c.number.desc())
    .limit(1)
)
_LAST_ATTEMPT = Statement(select(_c.id).where(_c.job == bindparam("of_job")).order_by(_c.number.desc()).limit(1))


def find_job(conn: Connection, ref: str, who: Identity = OWNER) -> FoundJob:
    """Return the job that `ref` names: an id, the ending of an id, or `last`, among those that the caller may see.

    Raises NotFound, Conflict. Endings are looked up by index, because ids are stored backwards too.
    """
    c = t.jobs.c
    if ref == "last":
        newest = _only_visible(select(c.id, c.project), who).order_by(c.id.desc()).limit(1)
        jobs = [FoundJob(*row) for row in conn.execute(newest)]
    elif is_id(ref):
        jobs = [FoundJob(row["id"], row["project"]) for row in _ID.all(conn, job=ref)]
    else:
        ending = ref.lower().removeprefix("job-")
        if len(ending) < 3 or not ending.isalnum():
            raise NotFound(f"{ref!r} names no job.", fix="`crucible jobs` lists them; three characters are enough.")
        first = ending[::-1]
        near = (c.backwards >= first, c.backwards < first + "~")
        matching = _only_visible(select(c.id, c.project).where(*near), who).order_by(c.id.desc()).limit(5)
        jobs = [FoundJob(*row) for row in conn.execute(matching)]
    jobs = [job for job in jobs if _may_see(who, job)]
    if not jobs:
        raise NotFound(f"There is no job {ref!r}.", fix="`crucible jobs` lists them.", id=ref)
    if len(jobs) > 1:
        several = [short(job.id) for job in jobs]
        raise Conflict(f"{ref!r} matches several jobs.", fix="Type more of the id.", candidates=several)
    return jobs[0]


@dataclass(frozen=True)
class FoundJob:
    """A job, and the project that decides who may do what with it."""

    id: str
    project: str


def _may_see(who: Identity, job: FoundJob) -> bool:
    return who.may(Permission.READ, job.project) and who.job in (None, job.id)


def _only_visible(query: Select[Any], who: Identity) -> Select[Any]:
    """Restrict a query to jobs that the caller may see."""
    projects = who.projects(Permission.READ)
    if projects is not None:
        query = query.where(_j.project.in_(projects))
    return query if who.job is None else query.where(_j.id == who.job)


def find_or_error(conn: Connection, ref: str, who: Identity, permission: Permission) -> str | CrucibleError:
    """Return the id of a job on which the caller has the permission, or the error instead of raising it."""
    try:
        job = find_job(conn, ref, who)
        who.require(permission, job.project)
    except (NotFound, Conflict, Forbidden) as error:
        return error
    return job.id


def read_job(conn: Connection, job: str, now: float) -> JobView:
    """Return the job without its output, metrics and health. Raises NotFound."""
    world = _world(conn, job)
    return _view(conn, world, bulk_views.attempt_details(conn, [a.id for a in world.attempts]), now)


def read_job_detail(conn: Connection, job: str, now: float) -> JobView:
    """Return all that is stored of a job but its output and its plan. Raises NotFound."""
    world = _world(conn, job)
    details = bulk_views.attempt_details(conn, [attempt.id for attempt in world.attempts])
    more = {
        "metrics": latest_metrics(conn, job),
        "health": _health(conn, world, details, now),
        "result": results.result_of_job(conn, job),
        "notes": tuple(notes.list_notes(conn, job)),
    }
    return _view(conn, world, details, now).model_copy(update=more)


def read_health(conn: Connection, job: str, now: float) -> HealthView:
    """Return the health of a job, judged from what is stored. Raises NotFound."""
    world = _world(conn, job)
    return _health(conn, world, bulk_views.attempt_details(conn, [a.id for a in world.attempts[-1:]]), now)


def _world(conn: Connection, job: str) -> World:
    world = repository.load_world(conn, job)
    if world is None:
        raise NotFound(f"There is no job {short(job)}.", fix="`crucible jobs` lists them.")
    return world


def _view(conn: Connection, world: World, details: Details, now: float) -> JobView:
    job = world.job
    ahead = bulk_views.count_ahead(conn, [job]).get(job.id, 0)
    newest = checkpoints.newest_mark(conn, job.id)
    named = labels.labels_by_job(conn, [job.id]).get(job.id)
    return job_view(world, details, bulk_views.price_segments(conn, world.machines), ahead, now, newest, named)


def _health(conn: Connection, world: World, details: Details, now: float) -> HealthView:
    last = details.get(world.attempts[-1].id) if world.attempts else None
    return health.job_health(conn, world, last.progress if last else None, now)


def list_events(conn: Connection, job: str | None, after: int, limit: int, who: Identity = OWNER) -> EventPage:
    """Return one job's events by their number, or by cursor those of all jobs that the caller may see."""
    c = t.events.c
    query = select(t.events).limit(min(max(limit, 1), 1000))
    if job is None:
        query = query.where(c.cursor > after).order_by(c.cursor)
        if who.projects(Permission.READ) is not None or who.job is not None:
            query = _only_visible(query.join(t.jobs, _j.id == c.job), who)
    else:
        query = query.where(c.job == job, c.n > after).order_by(c.n)
    rows = conn.execute(query).mappings().all()
    return EventPage(items=tuple(event_view(dict(row), with_job=job is None) for row in rows))


def list_checkpoints(conn: Connection, job: str) -> CheckpointPage:
    """Return the checkpoints of a job, newest first, including those that are no longer kept."""
    spec = conn.execute(select(t.jobs.c.spec).where(t.jobs.c.id == job)).scalar_one()
    higher = JobSpec.model_validate_json(spec).keep.higher_is_better
    return CheckpointPage(items=checkpoints.list_checkpoints(conn, job, higher_is_better=higher))


def list_artifacts(conn: Connection, job: str) -> ArtifactPage:
    """Return the newest artifact of each path, over all attempts."""
    c = t.artifacts.c
    rows = conn.execute(
        select(c.path, c.size, c.sha256, c.attempt, t.attempts.c.number)
        .join(t.attempts, t.attempts.c.id == c.attempt)
        .where(c.job == job)
        .order_by(t.attempts.c.number, c.path)
    ).all()
    newest = {
        r.path: ArtifactView(path=r.path, size=r.size, sha256=r.sha256, attempt=r.number, attempt_id=r.attempt)
        for r in rows
    }
    return ArtifactPage(items=tuple(newest[path] for path in sorted(newest)))


def find_artifact(conn: Connection, job: str, path: str) -> StoredFile | None:
    """Return the file of the newest artifact of this path, or None."""
    row = _ARTIFACT.first(conn, job=job, path=path)
    if row is None:
        return None
    attempt, sha256 = row["attempt"], row["sha256"]
    keys = [output_key(job, attempt, sha256)]
    with suppress(UnsafePath):  # a path that is too long for a key, which version 0.1.0 did not store
        keys.append(artifact_key(job, attempt, path))
    key, *others = keys if row["hashed"] else reversed(keys)
    return StoredFile(key, row["size"], sha256, *others)


def read_metrics(conn: Connection, job: str, names: Sequence[str], most: int) -> MetricsView:
    """Return the series of the latest attempt that reported any."""
    for attempt in reversed(repository.load_attempts(conn, job)):
        all_series = points.read_series(conn, attempt.id, names, most)
        if all_series:
            return MetricsView(
                attempt=attempt.number, series={name: _series_view(series) for name, series in all_series.items()}
            )
    return MetricsView()


def latest_metrics(conn: Connection, job: str) -> dict[str, float | None]:
    """Return the last value of each series of the last attempt."""
    attempt = _LAST_ATTEMPT.value(conn, of_job=job)
    return points.latest_values(conn, attempt) if attempt else {}


def read_machine(conn: Connection, machine: str, now: float) -> MachineView:
    row = repository.load_machine(conn, machine)
    if row is None:
        raise NotFound(f"There is no machine {short(machine)}.", fix="`crucible machines --all` lists them.")
    prices, errors = bulk_views.price_segments(conn, [machine]), bulk_views.termination_errors(conn, [machine])
    return machine_view(row, prices.get(machine, ()), now, errors.get(machine, ""))


def list_machines(
    conn: Connection, now: float, *, gone_too: bool = True, who: Identity = OWNER, backend: str | None = None
) -> MachinePage:
    """Return machines (of this backend), newest first: for operators all, for others those of jobs they may see."""
    query = select(t.machines).order_by(t.machines.c.id.desc()).limit(MAX_PAGE)
    if backend is not None:
        query = query.where(t.machines.c.backend == backend)
    if not who.may(Permission.OPERATE):
        used = select(t.slots.c.machine).join(t.attempts, _c.id == t.slots.c.attempt).join(t.jobs, _j.id == _c.job)
        query = query.where(t.machines.c.id.in_(_only_visible(used, who)))
    if not gone_too:
        query = query.where(t.machines.c.state != MachineState.GONE.value)
    machines = [codec.machine_from_row(row) for row in conn.execute(query).mappings().all()]
    ids = [machine.id for machine in machines]
    prices, errors = bulk_views.price_segments(conn, ids), bulk_views.termination_errors(conn, ids)
    return MachinePage(items=tuple(machine_view(m, prices.get(m.id, ()), now, errors.get(m.id, "")) for m in machines))


@dataclass(frozen=True)
class Counts:
    """Running and waiting jobs among those that the caller may see; billing machines of the whole deployment."""

    running: int
    queued: int
    billing: int


def count_jobs(conn: Connection, who: Identity = OWNER) -> Counts:
    c = t.jobs.c
    counted = _only_visible(select(c.state, func.count().label("n")).where(c.state.in_(ACTIVE_STATES)), who).group_by(
        c.state
    )
    by_state = {r.state: r.n for r in conn.execute(counted).all()}
    billing = select(func.count()).where(
        t.machines.c.state != MachineState.GONE.value,
        t.machines.c.bills.is_(True),
        t.machines.c.rate > 0,
        t.machines.c.started_at.is_not(None),
    )
    return Counts(
        running=sum(by_state.get(s.value, 0) for s in states_of(Status.RUNNING)),
        queued=sum(by_state.get(s.value, 0) for s in states_of(Status.QUEUED)),
        billing=conn.execute(billing).scalar() or 0,
    )


def _series_view(series: points.Series) -> SeriesView:
    return SeriesView(count=series.count, last=series.last, min=series.low, max=series.high, points=series.points)
