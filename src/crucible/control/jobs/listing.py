"""List the jobs that match a filter, newest first, a page at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, func, or_, select

from crucible.control.db import schema as t
from crucible.control.jobs import bulk_views, cursors
from crucible.control.jobs.labels import fold_case
from crucible.core.ids import is_id
from crucible.core.job.job_filter import ANY_ENDING, JobFilter
from crucible.core.job.tags import Tag
from crucible.core.people.identity import OWNER, Identity, Permission
from crucible.core.views.jobs import JobPage

MAX_PAGE = 500
COUNT_LIMIT = 2000
_MARK = "j1:"
_LAST = "\U0010ffff"

_j, _l = t.jobs.c, t.listings.c


@dataclass(frozen=True)
class VisibleFilter:
    """A filter restricted to what a caller may see. `job`: only this one, as for share links."""

    filter: JobFilter
    nothing: bool = False
    job: str | None = None


def restrict_to_visible(
    job_filter: JobFilter, who: Identity, permission: Permission = Permission.READ
) -> VisibleFilter:
    """Restrict the filter to the projects where the caller has the permission."""
    allowed = who.projects(permission)
    if allowed is None:
        return VisibleFilter(job_filter, job=who.job)
    requested = frozenset(job_filter.project) or allowed
    narrowed = job_filter.model_copy(update={"project": tuple(sorted(requested & allowed))})
    return VisibleFilter(narrowed, nothing=not narrowed.project, job=who.job)


def list_jobs(
    conn: Connection, job_filter: JobFilter, limit: int, cursor: str | None, now: float, who: Identity = OWNER
) -> JobPage:
    """Return a page of the jobs that match and that the caller may see, newest first."""
    size = min(max(limit, 1), MAX_PAGE)
    ids = matching_jobs(conn, restrict_to_visible(job_filter, who), size + 1, read_cursor(cursor))
    page = ids[:size]
    return JobPage(
        items=tuple(bulk_views.job_views(conn, page, now)),
        next=write_cursor(page[-1]) if len(ids) > len(page) else None,
    )


def matching_jobs(conn: Connection, visible: VisibleFilter, limit: int, before: str | None = None) -> list[str]:
    """Return the ids of the newest `limit` jobs that match, older than `before`."""
    if visible.nothing:
        return []
    query = _query(visible.filter, _choose_plan(conn, visible.filter), before, conn.dialect.name)
    if visible.job is not None:
        query = query.where(query.selected_columns[0] == visible.job)
    return list(conn.execute(query.limit(limit)).scalars())


def write_cursor(job: str) -> str:
    return cursors.encode_cursor(_MARK, job)


def read_cursor(cursor: str | None) -> str | None:
    """Return the job that a page ended with. Raises BadInput for an invalid cursor."""
    if cursor is None:
        return None
    job = cursors.decode_cursor(_MARK, cursor)
    if job is None or not is_id(job):
        raise cursors.bad_cursor("newest")
    return job


@dataclass(frozen=True)
class _QueryPlan:
    """The table whose index is scanned, newest first, and the tags, beginning with the one that is scanned.

    `rows`: the jobs whose own row matches, if there are few enough that they were read already.
    """

    base: Table
    tags: tuple[Tag, ...] = ()
    rows: tuple[str, ...] | None = None


def _choose_plan(conn: Connection, job_filter: JobFilter) -> _QueryPlan:
    """Choose the scan with the fewest rows. Nothing is counted beyond COUNT_LIMIT, where it makes no difference."""
    of_row = _job_conditions(job_filter)
    if not job_filter.tags:
        return _QueryPlan(t.listings if job_filter.needs_spec else t.jobs)
    if len(job_filter.tags) == 1 and not of_row:
        return _QueryPlan(t.job_tags, job_filter.tags)
    counts = {tag: _count(conn, select(t.job_tags.c.job).where(_has_tag(t.job_tags.c, tag))) for tag in job_filter.tags}
    tags = tuple(sorted(job_filter.tags, key=counts.__getitem__))
    if counts[tags[0]] < COUNT_LIMIT or not of_row:
        return _QueryPlan(t.job_tags, tags)
    rows = tuple(conn.execute(select(_j.id).where(*of_row).limit(COUNT_LIMIT)).scalars())
    return _QueryPlan(t.jobs, tags, rows) if len(rows) < COUNT_LIMIT else _QueryPlan(t.job_tags, tags)


def _count(conn: Connection, query: Select[Any]) -> int:
    return int(conn.execute(select(func.count()).select_from(query.limit(COUNT_LIMIT).subquery())).scalar_one())


def _query(job_filter: JobFilter, plan: _QueryPlan, before: str | None, dialect: str) -> Select[Any]:
    of_row = _job_conditions(job_filter) if plan.rows is None else [_j.id.in_(plan.rows)]
    of_listing = _listing_conditions(job_filter, dialect)
    job = plan.base.c.id if plan.base is t.jobs else plan.base.c.job
    query = select(job).where(*of_row, *of_listing).order_by(job.desc())
    scanned = plan.tags[:1] if plan.base is t.job_tags else ()
    for tag in scanned:
        query = query.where(_has_tag(t.job_tags.c, tag))
    for tag in plan.tags[len(scanned) :]:
        other = t.job_tags.alias()
        # Not EXISTS: PostgreSQL would join all rows of the common tag instead of looking up a few.
        its = select(other.c.job).where(other.c.job == job, _has_tag(other.c, tag)).limit(1)
        query = query.where(its.scalar_subquery().is_not(None))
    if of_listing and plan.base is not t.listings:
        query = query.join(t.listings, _l.job == job)
    if of_row and plan.base is not t.jobs:
        query = query.join(t.jobs, _j.id == job)
    return query if before is None else query.where(job < before)


def _has_tag(columns: Any, tag: Tag) -> ColumnElement[bool]:
    same = columns.key == tag.key
    return and_(same, columns.value == tag.value) if tag.value else same


def _job_conditions(job_filter: JobFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    states = job_filter.states()
    if states is not None:
        conditions.append(_j.state.in_(sorted(state.value for state in states)))
    if job_filter.backend:
        conditions.append(_j.backend.in_(job_filter.backend))
    if job_filter.project:
        conditions.append(_j.project.in_(job_filter.project))
    if job_filter.created_after is not None:
        conditions.append(_j.created_at >= job_filter.created_after.timestamp())
    if job_filter.created_before is not None:
        conditions.append(_j.created_at < job_filter.created_before.timestamp())
    return conditions


def _listing_conditions(job_filter: JobFilter, dialect: str) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if job_filter.kind:
        conditions.append(_l.kind.in_([kind.value for kind in job_filter.kinds()]))
    if job_filter.named is not None:
        conditions.append(_l.name == job_filter.named)
    if job_filter.name is not None and job_filter.name.endswith(ANY_ENDING):
        prefix = fold_case(job_filter.name.removesuffix(ANY_ENDING))
        conditions += [_l.folded >= prefix, _l.folded < prefix + _LAST]
    elif job_filter.name is not None:
        conditions.append(_contains(_l.folded, fold_case(job_filter.name), dialect))
    if job_filter.text is not None:
        text = fold_case(job_filter.text)
        conditions.append(or_(*(_contains(column, text, dialect) for column in (_l.folded, _l.words))))
    return conditions


def _contains(column: ColumnElement[str], text: str, dialect: str) -> ColumnElement[bool]:
    """Return the condition in the way the database is fast at: SQLite is slower with instr, PostgreSQL with LIKE."""
    return column.contains(text, autoescape=True) if dialect == "sqlite" else func.strpos(column, text) > 0
