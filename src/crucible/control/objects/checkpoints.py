"""The rows of checkpoints: what is complete in the store, and what the next attempt starts from.

A row is written only after its object was stored and verified, so a job can be resumed from every row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, RowMapping, bindparam, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement, insert_row
from crucible.control.jobs.views import iso
from crucible.control.objects.bundles import StoredFile
from crucible.control.reconcile.unit_of_work import UnitOfWork
from crucible.control.runtime.ports import Ids
from crucible.core.errors import Conflict, NotFound
from crucible.core.ids import Prefix, is_id, short
from crucible.core.lifecycle import Event, Step, World
from crucible.core.people.identity import OWNER, Identity, Permission
from crucible.core.views.jobs import CheckpointMark, CheckpointView
from crucible.storage.layout import checked_sha256, checkpoint_key
from crucible.wire.documents.desired import Resume
from crucible.wire.files.paths import safe_name

FORMS = frozenset({"file", "folder"})
LARGEST = 2**63 - 1
LATEST, BEST = "latest", "best"
SHORTEST_ENDING = 3


def add_checkpoint(
    unit: UnitOfWork, ids: Ids, world: World, attempt: str, rank: int, fields: Mapping[str, object]
) -> World:
    """Add the row of a stored checkpoint that its runner announced. Raises ValueError for invalid fields."""
    row = {**_parse_fields(fields), "job": world.job.id, "attempt": attempt, "rank": rank, "stored_at": unit.now}
    if _is_repeat(unit.conn, row):
        return world
    row["id"] = ids.new(Prefix.CHECKPOINT)
    _ADD.run(unit.conn, **row)
    number = next((a.number for a in world.attempts if a.id == attempt), None)
    shown = {name: row[name] for name in ("id", "name", "step", "metric", "size")}
    return unit.save(world, Step(world, (Event("checkpoint", {"attempt": number, **shown}),)))


def next_start(conn: Connection, world: World) -> str | None:
    """Return the checkpoint that the next attempt starts from: the newest since the job was last reopened.

    If there is none: the one chosen when it was reopened, else the newest of all, else the one of its spec.
    """
    since = [a.id for a in world.attempts if a.number > world.job.attempts_before_reopen]
    newest = _newest(conn, world.job.id, since)
    if newest is not None or world.job.resume_from is not None:
        return newest or world.job.resume_from
    return _newest(conn, world.job.id, [a.id for a in world.attempts]) or world.job.spec.resume_from


def resolve_checkpoint(conn: Connection, ref: str, who: Identity = OWNER) -> str:
    """Return a checkpoint's id from an id or its ending, of any job the user may see. Raises NotFound, Conflict."""
    c = t.checkpoints.c
    ending = ref.lower().removeprefix("ckp-")
    fits = c.id == ref if is_id(ref) else c.id.endswith(ending, autoescape=True)
    kept = select(c.id).where(fits, c.pruned_at.is_(None)).limit(2)
    seen = who.projects(Permission.READ)
    if seen is not None:
        kept = kept.join(t.jobs, t.jobs.c.id == c.job).where(t.jobs.c.project.in_(seen))
    known = len(ending) >= SHORTEST_ENDING and conn.execute(kept)
    ids = list(known.scalars()) if known else []
    if not ids:
        raise NotFound(f"There is no checkpoint {ref!r}.", fix="`crucible checkpoints JOB` lists those of a job.")
    if len(ids) > 1:
        raise Conflict(f"{ref!r} fits several checkpoints.", fix="Type more of the id.")
    return str(ids[0])


def load_resume(conn: Connection, checkpoint: str) -> Resume | None:
    """Return what an agent needs to fetch it; None if it is no longer kept."""
    row = _BY_ID.first(conn, checkpoint=checkpoint)
    if row is None:
        return None
    return Resume(row["id"], row["name"], row["form"], row["size"], row["sha256"], row["step"])


def list_checkpoints(conn: Connection, job: str, *, higher_is_better: bool) -> tuple[CheckpointView, ...]:
    """Return all checkpoints of a job, newest first, also those that are no longer kept."""
    query = _ALL.where(t.checkpoints.c.job == job).order_by(*_NEWEST_FIRST)
    rows = conn.execute(query).mappings().all()
    kept = [row for row in rows if row["pruned_at"] is None]
    latest = kept[0]["id"] if kept else None
    best = _best(kept, higher_is_better=higher_is_better)
    return tuple(_view(row, latest=row["id"] == latest, best=row["id"] == best) for row in rows)


def newest_mark(conn: Connection, job: str) -> CheckpointMark | None:
    """Return a short view of the newest one that is kept, or None."""
    row = _NEWEST.first(conn, job=job)
    return None if row is None else to_mark(row)


def newest_marks(conn: Connection, jobs: Sequence[str]) -> dict[str, CheckpointMark]:
    """Return the same for many jobs at once; jobs without a checkpoint are left out."""
    rows = _KEPT.all(conn, jobs=jobs)
    return {row["job"]: to_mark(row) for row in rows}  # the last of each job is its newest


def to_mark(row: Row) -> CheckpointMark:
    return CheckpointMark(id=row["id"], short=short(row["id"]), name=row["name"], step=row["step"])


def find_checkpoint(views: Sequence[CheckpointView], ref: str, job: str) -> CheckpointView:
    """Return the checkpoint with this id, name (the newest), `latest`, `best` or ending of an id.

    Raises NotFound, Conflict.
    """
    kept = [view for view in views if view.kept]
    exact = [view for view in kept if ref in (view.id, view.short, view.name)]
    named = exact or [view for view in kept if (view.latest and ref == LATEST) or (view.best and ref == BEST)]
    if named:
        return named[0]
    endings = [view for view in kept if len(ref) >= SHORTEST_ENDING and view.id.endswith(ref)]
    if len(endings) > 1:
        raise Conflict(f"{ref!r} fits several checkpoints.", fix="Type more of the id.")
    if endings:
        return endings[0]
    gone = next((view for view in views if ref in (view.id, view.short, view.name)), None)
    why = f"It was removed: {gone.why}." if gone else ""
    if ref == BEST and kept:
        why = "None of those that are kept has a metric."
    raise NotFound(
        f"Job {short(job)} has no checkpoint {ref!r}.", why=why, fix=f"crucible checkpoints {short(job)} lists them."
    )


def stored_file(job: str, view: CheckpointView) -> StoredFile:
    return StoredFile(checkpoint_key(job, view.sha256), view.size, view.sha256)


_FIELDS = ("name", "form", "size", "sha256", "step", "metric")
"""The fields that a runner sends."""
_ALL = select(t.checkpoints, t.attempts.c.number).join(t.attempts, t.attempts.c.id == t.checkpoints.c.attempt)
_NEWEST_FIRST = (t.attempts.c.number.desc(), t.checkpoints.c.cursor.desc())
"""By the attempt that wrote it, then by the order it was stored in."""
_NEWEST = Statement(
    _ALL.where(t.checkpoints.c.job == bindparam("job"), t.checkpoints.c.pruned_at.is_(None))
    .order_by(*_NEWEST_FIRST)
    .limit(1)
)
_KEPT = Statement(
    _ALL.where(
        t.checkpoints.c.job.in_(bindparam("jobs", expanding=True)), t.checkpoints.c.pruned_at.is_(None)
    ).order_by(t.attempts.c.number, t.checkpoints.c.cursor)
)
_BY_ID = Statement(
    select(t.checkpoints).where(t.checkpoints.c.pruned_at.is_(None), t.checkpoints.c.id == bindparam("checkpoint"))
)
_c = t.checkpoints.c
_ADD = Statement(insert_row(t.checkpoints, [*_FIELDS, "id", "job", "attempt", "rank", "stored_at"]))
_LAST_OF = Statement(
    select(_c.id)
    .join(t.attempts, t.attempts.c.id == _c.attempt)
    .where(_c.job == bindparam("job"), _c.attempt.in_(bindparam("attempts", expanding=True)), _c.pruned_at.is_(None))
    .order_by(*_NEWEST_FIRST)
    .limit(1)
)
_LAST_CONTENT = Statement(
    select(_c.sha256)
    .where(
        _c.attempt == bindparam("attempt"),
        _c.rank == bindparam("rank"),
        _c.name == bindparam("name"),
        _c.pruned_at.is_(None),
    )
    .order_by(_c.cursor.desc())
    .limit(1)
)


def _newest(conn: Connection, job: str, attempts: list[str]) -> str | None:
    if not attempts:
        return None
    found = _LAST_OF.value(conn, job=job, attempts=attempts)
    return None if found is None else str(found)


def _best(rows: list[RowMapping], *, higher_is_better: bool) -> str | None:
    sign = -1 if higher_is_better else 1
    scored = [(sign * row["metric"], -row["cursor"], row["id"]) for row in rows if row["metric"] is not None]
    return min(scored)[2] if scored else None


def _is_repeat(conn: Connection, row: Mapping[str, object]) -> bool:
    """Return whether this was announced before: the newest of that name has the same content."""
    last = _LAST_CONTENT.value(conn, attempt=row["attempt"], rank=row["rank"], name=row["name"])
    return bool(last == row["sha256"])


def _parse_fields(fields: Mapping[str, object]) -> dict[str, object]:
    form, size, step, metric = fields["form"], fields["size"], fields.get("step"), fields.get("metric")
    if form not in FORMS:
        raise ValueError(f"{form!r} is not a form of a checkpoint")
    if not _is_count(size) or not (step is None or _is_count(step)):
        raise ValueError("a checkpoint's size and step are whole numbers")
    return {
        "name": safe_name(str(fields["name"])[:255]),
        "form": form,
        "size": size,
        "sha256": checked_sha256(str(fields["sha256"])),
        "step": step,
        "metric": float(metric) if isinstance(metric, int | float) and math.isfinite(metric) else None,
    }


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def _view(row: RowMapping, *, latest: bool, best: bool) -> CheckpointView:
    return CheckpointView(
        id=row["id"],
        short=short(row["id"]),
        name=row["name"],
        form=row["form"],
        step=row["step"],
        metric=row["metric"],
        size=row["size"],
        sha256=row["sha256"],
        attempt=row["number"],
        stored_at=iso(row["stored_at"]),
        kept=row["pruned_at"] is None,
        why=row["why"] or None,
        latest=latest,
        best=best,
    )
