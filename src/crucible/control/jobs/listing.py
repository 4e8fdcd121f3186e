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


def restrict_to_visible(wanted: JobFilter, who: Identity, permission: Permission = Permission.READ) -> VisibleFilter:
    """Restrict the filter to the projects where the caller has the permission."""
    allowed = who.projects(permission)
    if allowed is None:
        return VisibleFilter(wanted, job=who.job)
    asked = frozenset(wanted.project) or allowed
    narrowed = wanted.model_copy(update={"project": tuple(sorted(asked & allowed))})
    return VisibleFilter(narrowed, nothing=not narrowed.project, job=who.job)


def list_jobs(
    conn: Connection, wanted: JobFilter, limit: int, cursor: str | None, now: float, who: Identity = OWNER
) -> JobPage:
    """Return a page of the jobs that match and that the caller may see, newest first."""
    size = min(max(limit, 1), MAX_PAGE)
    ids = matching_jobs(conn, restrict_to_visible(wanted, who), size + 1, read_cursor(cursor))
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


def _choose_plan(conn: Connection, wanted: JobFilter) -> _QueryPlan:
    """Choose the scan with the fewest rows. Nothing is counted beyond COUNT_LIMIT, where it makes no difference."""
    of_row = _job_conditions(wanted)
    if not wanted.tags:
        return _QueryPlan(t.listings if wanted.needs_spec else t.jobs)
    if len(wanted.tags) == 1 and not of_row:
        return _QueryPlan(t.job_tags, wanted.tags)
    counts = {tag: _count(conn, select(t.job_tags.c.job).where(_has_tag(t.job_tags.c, tag))) for tag in wanted.tags}
    tags = tuple(sorted(wanted.tags, key=counts.__getitem__))
    if counts[tags[0]] < COUNT_LIMIT or not of_row:
        return _QueryPlan(t.job_tags, tags)
    rows = tuple(conn.execute(select(_j.id).where(*of_row).limit(COUNT_LIMIT)).scalars())
    return _QueryPlan(t.jobs, tags, rows) if len(rows) < COUNT_LIMIT else _QueryPlan(t.job_tags, tags)


def _count(conn: Connection, query: Select[Any]) -> int:
    return int(conn.execute(select(func.count()).select_from(query.limit(COUNT_LIMIT).subquery())).scalar_one())


def _query(wanted: JobFilter, way: _QueryPlan, before: str | None, dialect: str) -> Select[Any]:
    of_row = _job_conditions(wanted) if way.rows is None else [_j.id.in_(way.rows)]
    of_listing = _listing_conditions(wanted, dialect)
    job = way.base.c.id if way.base is t.jobs else way.base.c.job
    query = select(job).where(*of_row, *of_listing).order_by(job.desc())
    along = way.tags[:1] if way.base is t.job_tags else ()
    for tag in along:
        query = query.where(_has_tag(t.job_tags.c, tag))
    for tag in way.tags[len(along) :]:
        other = t.job_tags.alias()
        # Not EXISTS: PostgreSQL would join all rows of the common tag instead of looking up a few.
        its = select(other.c.job).where(other.c.job == job, _has_tag(other.c, tag)).limit(1)
        query = query.where(its.scalar_subquery().is_not(None))
    if of_listing and way.base is not t.listings:
        query = query.join(t.listings, _l.job == job)
    if of_row and way.base is not t.jobs:
        query = query.join(t.jobs, _j.id == job)
    return query if before is None else query.where(job < before)


def _has_tag(columns: Any, tag: Tag) -> ColumnElement[bool]:
    same = columns.key == tag.key
    return and_(same, columns.value == tag.value) if tag.value else same


def _job_conditions(wanted: JobFilter) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    states = wanted.states()
    if states is not None:
        found.append(_j.state.in_(sorted(state.value for state in states)))
    if wanted.backend:
        found.append(_j.backend.in_(wanted.backend))
    if wanted.project:
        found.append(_j.project.in_(wanted.project))
    if wanted.created_after is not None:
        found.append(_j.created_at >= wanted.created_after.timestamp())
    if wanted.created_before is not None:
        found.append(_j.created_at < wanted.created_before.timestamp())
    return found


def _listing_conditions(wanted: JobFilter, dialect: str) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if wanted.kind:
        found.append(_l.kind.in_([kind.value for kind in wanted.kinds()]))
    if wanted.named is not None:
        found.append(_l.name == wanted.named)
    if wanted.name is not None and wanted.name.endswith(ANY_ENDING):
        beginning = fold_case(wanted.name.removesuffix(ANY_ENDING))
        found += [_l.folded >= beginning, _l.folded < beginning + _LAST]
    elif wanted.name is not None:
        found.append(_contains(_l.folded, fold_case(wanted.name), dialect))
    if wanted.text is not None:
        sought = fold_case(wanted.text)
        found.append(or_(*(_contains(column, sought, dialect) for column in (_l.folded, _l.words))))
    return found


def _contains(column: ColumnElement[str], text: str, dialect: str) -> ColumnElement[bool]:
    """Return the condition in the way the database is fast at: SQLite is slower with instr, PostgreSQL with LIKE."""
    return column.contains(text, autoescape=True) if dialect == "sqlite" else func.strpos(column, text) > 0
