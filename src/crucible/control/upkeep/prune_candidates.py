"""Queries for what pruning may remove, and how much it is; retention.py removes it. Nothing here writes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, exists, func, select

from crucible.backends.bootstrap import find_agent_sha256
from crucible.control.agents.agent_downloads import is_booted_from
from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.jobs.queries import TERMINAL_STATES
from crucible.control.objects.pending_objects import PendingObject
from crucible.core.job.retention import Checkpoint, EndedJob, RetentionVerdict, keep_checkpoints, prune_jobs
from crucible.core.job.spec import KeepPolicy
from crucible.core.lifecycle import MachineState
from crucible.core.views.server import PrunedView
from crucible.storage.layout import checkpoint_key

_c, _other, _attempt = t.checkpoints.c, t.checkpoints.alias("other"), t.attempts.c
_WANTED = Statement(select(t.jobs.c.spec, t.jobs.c.resume_from).where(t.jobs.c.id == bindparam("job")))
_STARTED_FROM = Statement(
    select(_attempt.resume_from).where(
        _attempt.job == bindparam("job"), _attempt.ended_at.is_(None), _attempt.resume_from.is_not(None)
    )
)
"""The checkpoints that running attempts started from."""
_KEPT = Statement(
    select(_c.id, _c.rank, _c.step, _c.metric)
    .join(t.attempts, _attempt.id == _c.attempt)
    .where(_c.job == bindparam("job"), _c.pruned_at.is_(None))
    .order_by(_attempt.number, _c.cursor)
)
_CHANGED = Statement(
    select(_c.job, func.min(_c.cursor).label("first"), func.max(_c.cursor).label("last"))
    .where(_c.cursor > bindparam("seen"), _c.pruned_at.is_(None))
    .group_by(_c.job)
    .order_by("first")
    .limit(bindparam("most"))
)
_SHARED = exists().where(_other.c.job == _c.job, _other.c.sha256 == _c.sha256, _other.c.pruned_at.is_(None))
_DEAD = Statement(select(_c.job, _c.sha256).where(_c.pruned_at >= bindparam("since"), ~_SHARED).distinct())
_NEEDED = Statement(
    select(_c.id).where(_c.job == bindparam("job"), _c.sha256 == bindparam("sha256"), _c.pruned_at.is_(None)).limit(1)
)
_PRUNED = Statement(
    select(t.jobs.c.id).where(t.jobs.c.pruned_at >= bindparam("since"), t.jobs.c.state.in_(sorted(TERMINAL_STATES)))
)


@dataclass(frozen=True)
class PrunePlan:
    jobs: tuple[RetentionVerdict, ...]
    items: tuple[PrunedView, ...]

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.items)

    def count(self, what: str) -> int:
        return sum(item.count for item in self.items if item.what == what)


@dataclass(frozen=True)
class ChangedJobs:
    """Jobs with new checkpoints up to `cursor`; `more` if there are others after it."""

    jobs: tuple[str, ...]
    cursor: int
    more: bool


def plan_prune(conn: Connection, older_than: float, now: float) -> PrunePlan:
    """Return what `prune` would remove now."""
    going = old_jobs(conn, older_than, now)
    items = [item for verdict in going for item in _prunable_of_job(conn, verdict)]
    gone = {verdict.id for verdict in going}
    items += [item for job in _with_checkpoints(conn) if job not in gone for item in _prunable_checkpoints(conn, job)]
    unused = unused_bundles(conn, now - older_than, gone)
    why = "no job that is kept uses it"
    items += [PrunedView(what="bundles", job=None, count=1, bytes=size, why=why) for _, size in unused]
    return PrunePlan(tuple(going), tuple(items))


def old_jobs(conn: Connection, older_than: float, now: float) -> list[RetentionVerdict]:
    """Return the ended jobs to prune, oldest first, with the reason."""
    c = t.jobs.c
    query = select(c.id, c.ended_at).where(
        c.state.in_(TERMINAL_STATES), c.pruned_at.is_(None), c.ended_at <= now - older_than
    )
    busy = _busy_jobs(conn)
    rows = [EndedJob(row.id, True, row.ended_at, row.id in busy) for row in conn.execute(query.order_by(c.id)).all()]
    return [verdict for verdict in prune_jobs(rows, older_than, now) if not verdict.kept]


def is_prunable(conn: Connection, job: str) -> bool:
    """Return whether the job has ended, left no machine, and is not pruned yet."""
    c = t.jobs.c
    query = select(c.id).where(c.id == job, c.state.in_(TERMINAL_STATES), c.pruned_at.is_(None))
    return conn.execute(query).first() is not None and job not in _busy_jobs(conn)


def judge_checkpoints(conn: Connection, job: str) -> list[RetentionVerdict]:
    """Return what the job's keep rules decide about its checkpoints."""
    wanted = _WANTED.first(conn, job=job)
    assert wanted is not None, "a checkpoint has a job"
    rows = [Checkpoint(r["id"], r["rank"], r["step"], r["metric"]) for r in _KEPT.all(conn, job=job)]
    keeping = KeepPolicy.model_validate(json.loads(wanted["spec"]).get("keep") or {})
    needed = {wanted["resume_from"], *_STARTED_FROM.column(conn, job=job)} - {None}
    return keep_checkpoints(rows, keeping, {str(checkpoint) for checkpoint in needed})


def changed_jobs(conn: Connection, seen: int, limit: int) -> ChangedJobs:
    rows = _CHANGED.all(conn, seen=seen, most=limit + 1)
    if len(rows) <= limit:
        return ChangedJobs(tuple(r["job"] for r in rows), max((r["last"] for r in rows), default=seen), False)
    # The next page begins with the first job after the limit, so nothing before it is read again.
    return ChangedJobs(tuple(r["job"] for r in rows[:limit]), rows[limit]["first"] - 1, True)


def dead_checkpoints(conn: Connection, since: float) -> list[PendingObject]:
    """Return the objects pruned since then that no kept checkpoint of the job shares."""
    rows = _DEAD.all(conn, since=since)
    return [PendingObject(checkpoint_key(r["job"], r["sha256"]), r["job"], r["sha256"]) for r in rows]


def is_needed(conn: Connection, stray: PendingObject) -> bool:
    """Return whether a row refers to the object by now."""
    agent = find_agent_sha256(stray.key)
    if agent is not None:
        return is_booted_from(conn, agent)
    if stray.sha256 is None:
        return False
    if stray.job is None:
        return conn.execute(select(t.bundles.c.sha256).where(t.bundles.c.sha256 == stray.sha256)).first() is not None
    return _NEEDED.value(conn, job=stray.job, sha256=stray.sha256) is not None


def pruned_jobs(conn: Connection, since: float) -> list[str]:
    return _PRUNED.column(conn, since=since)


def unused_bundles(conn: Connection, before: float, without: Iterable[str]) -> list[tuple[str, int]]:
    """Return (hash, size) of bundles older than `before` that no kept job but those in `without` uses."""
    gone = set(without)
    jobs = conn.execute(select(t.jobs.c.id, t.jobs.c.spec).where(t.jobs.c.pruned_at.is_(None))).all()
    used = {json.loads(row.spec).get("bundle") for row in jobs if row.id not in gone}
    c = t.bundles.c
    rows = conn.execute(select(c.sha256, c.size).where(c.created_at <= before).order_by(c.created_at)).all()
    return [(row.sha256, row.size) for row in rows if row.sha256 not in used]


def bundle_is_used(conn: Connection, sha256: str) -> bool:
    c = t.jobs.c
    return conn.execute(select(c.id).where(c.pruned_at.is_(None), c.spec.contains(sha256)).limit(1)).first() is not None


def _busy_jobs(conn: Connection) -> set[str]:
    """Return jobs of which a rank or a machine may still be alive."""
    joined = t.slots.join(t.attempts, t.attempts.c.id == t.slots.c.attempt)
    open_ranks = select(t.attempts.c.job).select_from(joined).where(t.slots.c.ended.is_(False))
    machine = t.machines.c
    owned = (machine.owner.startswith("attempt:"), machine.state != MachineState.GONE.value)
    machines = (
        select(t.attempts.c.job).select_from(joined.join(t.machines, machine.id == t.slots.c.machine)).where(*owned)
    )
    return {*conn.execute(open_ranks).scalars(), *conn.execute(machines).scalars()}


def _with_checkpoints(conn: Connection) -> list[str]:
    c = t.checkpoints.c
    return list(conn.execute(select(c.job).where(c.pruned_at.is_(None)).distinct().order_by(c.job)).scalars())


def _prunable_checkpoints(conn: Connection, job: str) -> list[PrunedView]:
    going = [verdict for verdict in judge_checkpoints(conn, job) if not verdict.kept]
    if not going:
        return []
    c = t.checkpoints.c
    sizes = select(func.sum(c.size)).where(c.id.in_([verdict.id for verdict in going]))
    size = int(conn.execute(sizes).scalar() or 0)
    return [PrunedView(what="checkpoints", job=job, count=len(going), bytes=size, why=going[0].why)]


def _prunable_of_job(conn: Connection, verdict: RetentionVerdict) -> list[PrunedView]:
    job = verdict.id
    attempts = select(t.attempts.c.id).where(t.attempts.c.job == job)
    checkpoint, artifact, log = t.checkpoints.c, t.artifacts.c, t.log_segments.c
    counted = {
        "checkpoints": select(func.count(), func.sum(checkpoint.size)).where(
            checkpoint.job == job, checkpoint.pruned_at.is_(None)
        ),
        "artifacts": select(func.count(), func.sum(artifact.size)).where(artifact.job == job),
        "logs": select(func.count(), func.sum(log.end - log.start)).where(log.attempt.in_(attempts)),
    }
    found = [(what, *conn.execute(query).one()) for what, query in counted.items()]
    return [
        PrunedView(what=what, job=job, count=count, bytes=int(size or 0), why=verdict.why)
        for what, count, size in found
        if count
    ]
