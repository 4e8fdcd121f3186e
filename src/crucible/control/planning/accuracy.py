"""The accuracy of predicted runtimes, and what later plans learn from it."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, Select, and_, func, select

from crucible.control.db import Db
from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement
from crucible.control.jobs.listing import MAX_PAGE, VisibleFilter, read_cursor, restrict_to_visible, write_cursor
from crucible.control.jobs.views import iso, reported_seconds
from crucible.core.ids import short
from crucible.core.job.job_filter import JobFilter
from crucible.core.job.states import status_of
from crucible.core.lifecycle import JobState
from crucible.core.people.identity import OWNER, Identity
from crucible.core.routing.corrections import Accuracy, PastRun, PastRuns, Similarity, accuracy
from crucible.core.views.plans import AccuracyView
from crucible.core.views.predictions import PredictionPage, PredictionView

MAX_LESSONS = 1000
"""Lessons in use."""
MAX_PREDICTIONS = 4 * MAX_LESSONS
"""Predictions that are searched for them: most jobs complete on the machine that was predicted."""
FRESH_SECONDS = 5.0

_p, _j, _a, _m = t.predictions.c, t.jobs.c, t.attempts.c, t.machines.c


def _with_outcome(predictions: Any) -> Select[Any]:
    """Join predictions with the state of their jobs, and with where and how long the first attempt ran."""
    first = and_(_a.job == predictions.c.job, _a.number == 1)
    there = and_(t.slots.c.attempt == _a.id, t.slots.c.rank == 0)
    ran = (_a.backend.label("ran_at"), _m.instance_type.label("ran_on"), _a.started_at, _a.exited_at, _a.facts)
    return (
        select(*predictions.c, _j.state, _j.attempts, t.listings.c.name, *ran)
        .select_from(predictions)
        .join(t.jobs, _j.id == predictions.c.job)
        .outerjoin(t.listings, t.listings.c.job == predictions.c.job)
        .outerjoin(t.attempts, first)
        .outerjoin(t.slots, there)
        .outerjoin(t.machines, _m.id == t.slots.c.machine)
        .order_by(predictions.c.job.desc())
    )


def lessons_query(predictions: Select[Any]) -> Select[Any]:
    """Select the newest of `predictions` whose jobs completed in their first attempt."""
    newest = predictions.order_by(_p.job.desc()).limit(MAX_PREDICTIONS).subquery()
    # coalesce, or SQLite would scan the index of states: every job that ever completed.
    completed = func.coalesce(_j.state, "") == JobState.COMPLETED.value
    return _with_outcome(newest).where(completed, _j.attempts == 1).limit(MAX_LESSONS)


_LESSONS = Statement(lessons_query(select(t.predictions)))


def read_lessons(conn: Connection) -> list[PastRun]:
    """Return the lessons of the newest jobs of the whole deployment."""
    return _lessons_from_rows(_LESSONS.all(conn))


def list_predictions(conn: Connection, limit: int, cursor: str | None, who: Identity = OWNER) -> PredictionPage:
    """Return a page of predictions, newest first, and their accuracy, for jobs that the caller may see."""
    size, before, visible = min(max(limit, 1), MAX_PAGE), read_cursor(cursor), restrict_to_visible(JobFilter(), who)
    if visible.nothing:
        return PredictionPage(accuracy=accuracy_view(accuracy(())))
    seen = _visible_predictions(visible)
    page = seen if before is None else seen.where(_p.job < before)
    query = _with_outcome(page.order_by(_p.job.desc()).limit(size + 1).subquery())
    rows = conn.execute(query).mappings().all()
    taught = _lessons_from_rows(conn.execute(lessons_query(seen)).mappings().all())
    return PredictionPage(
        items=tuple(_view(row) for row in rows[:size]),
        next=write_cursor(rows[size - 1]["job"]) if len(rows) > size else None,
        accuracy=accuracy_view(accuracy(taught)),
    )


def accuracy_view(found: Accuracy) -> AccuracyView:
    return AccuracyView(
        count=found.count,
        median_error=None if found.median_error is None else round(found.median_error, 4),
        close=None if found.close is None else round(found.close, 4),
    )


class Lessons:
    """The lessons of past jobs, cached for a few seconds."""

    def __init__(self, db: Db) -> None:
        self._db = db
        self._known = PastRuns()
        self._read_at: float | None = None

    async def current(self, now: float) -> PastRuns:
        if self._read_at is None or not 0 <= now - self._read_at < FRESH_SECONDS:
            self._known = PastRuns(await self._db.read(read_lessons))
            self._read_at = now
        return self._known


def _visible_predictions(visible: VisibleFilter) -> Select[Any]:
    query = select(t.predictions)
    if visible.filter.project:
        query = query.where(_p.project.in_(visible.filter.project))
    return query if visible.job is None else query.where(_p.job == visible.job)


def _lessons_from_rows(rows: Any) -> list[PastRun]:
    return [lesson for row in rows if (lesson := _lesson_from_row(row)) is not None]


def _lesson_from_row(row: Row) -> PastRun | None:
    took = _actual_seconds(row)
    if _why_not(row, took):
        return None
    like = Similarity(row["framework"], row["gpu"], row["script"])
    return PastRun(like, row["analytic_seconds"], row["predicted_seconds"], took)


def _why_not(row: Row, took: float) -> str:
    """Return why a job shows nothing about its prediction; empty if it does."""
    state = JobState(row["state"])
    if not state.terminal:
        return "it has not ended"
    if state is not JobState.COMPLETED:
        return "it did not complete"
    if row["attempts"] != 1:
        return "it took several attempts"
    if (row["ran_at"], row["ran_on"]) != (row["backend"], row["instance_type"]):
        return "it ran elsewhere"
    return "" if took > 0 else "its runtime is not known"


def _actual_seconds(row: Row) -> float:
    """Return the actual runtime, by the runner's own clock if it reported it."""
    reported = reported_seconds(json.loads(row["facts"] or "{}"))
    if reported is not None:
        return reported
    return float((row["exited_at"] or 0.0) - (row["started_at"] or row["exited_at"] or 0.0))


def _view(row: Row) -> PredictionView:
    why, lesson = _why_not(row, _actual_seconds(row)), _lesson_from_row(row)
    return PredictionView(
        job=row["job"],
        short=short(row["job"]),
        name=row["name"],
        project=row["project"],
        status=status_of(JobState(row["state"])).value,
        framework=row["framework"] or None,
        backend=row["backend"],
        instance_type=row["instance_type"],
        gpu=row["gpu"] or None,
        analytic_seconds=row["analytic_seconds"],
        predicted_seconds=row["predicted_seconds"],
        took_seconds=None if lesson is None else lesson.real,
        error=None if lesson is None else round(lesson.error, 4),
        why_not=why or None,
        made_at=iso(row["made_at"]),
    )
