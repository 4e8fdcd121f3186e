"""Accuracy: the predicted times of jobs beside the real ones, and what the next plans learn from them."""

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
"""Lessons that count."""
MAX_PREDICTIONS = 4 * MAX_LESSONS
"""Predictions that are looked at for them: most jobs complete where it was said."""
FRESH_SECONDS = 5.0

_p, _j, _a, _m = t.predictions.c, t.jobs.c, t.attempts.c, t.machines.c


def _with_outcome(told: Any) -> Select[Any]:
    """Predictions with what became of their jobs: the state, and where and how long the first attempt ran."""
    first = and_(_a.job == told.c.job, _a.number == 1)
    there = and_(t.slots.c.attempt == _a.id, t.slots.c.rank == 0)
    ran = (_a.backend.label("ran_at"), _m.instance_type.label("ran_on"), _a.started_at, _a.exited_at, _a.facts)
    return (
        select(*told.c, _j.state, _j.attempts, t.listings.c.name, *ran)
        .select_from(told)
        .join(t.jobs, _j.id == told.c.job)
        .outerjoin(t.listings, t.listings.c.job == told.c.job)
        .outerjoin(t.attempts, first)
        .outerjoin(t.slots, there)
        .outerjoin(t.machines, _m.id == t.slots.c.machine)
        .order_by(told.c.job.desc())
    )


def lessons_query(told: Select[Any]) -> Select[Any]:
    """Those of the newest of `told` whose jobs completed at the first try."""
    newest = told.order_by(_p.job.desc()).limit(MAX_PREDICTIONS).subquery()
    # Not the bare column: SQLite would go along the index of states, through every job that ever completed.
    completed = func.coalesce(_j.state, "") == JobState.COMPLETED.value
    return _with_outcome(newest).where(completed, _j.attempts == 1).limit(MAX_LESSONS)


_LESSONS = Statement(lessons_query(select(t.predictions)))


def read_lessons(conn: Connection) -> list[PastRun]:
    """What the newest jobs of the whole deployment teach."""
    return _lessons_from_rows(_LESSONS.all(conn))


def list_predictions(conn: Connection, limit: int, cursor: str | None, who: Identity = OWNER) -> PredictionPage:
    """A page, newest first, of the jobs that he may see, and how good the predictions of those were."""
    size, before, his = min(max(limit, 1), MAX_PAGE), read_cursor(cursor), restrict_to_visible(JobFilter(), who)
    if his.nothing:
        return PredictionPage(accuracy=accuracy_view(accuracy(())))
    seen = _visible_predictions(his)
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
    """What past jobs teach, read again when it is a few seconds old."""

    def __init__(self, db: Db) -> None:
        self._db = db
        self._known = PastRuns()
        self._read_at: float | None = None

    async def current(self, now: float) -> PastRuns:
        if self._read_at is None or not 0 <= now - self._read_at < FRESH_SECONDS:
            self._known = PastRuns(await self._db.read(read_lessons))
            self._read_at = now
        return self._known


def _visible_predictions(his: VisibleFilter) -> Select[Any]:
    query = select(t.predictions)
    if his.filter.project:
        query = query.where(_p.project.in_(his.filter.project))
    return query if his.job is None else query.where(_p.job == his.job)


def _lessons_from_rows(rows: Any) -> list[PastRun]:
    return [lesson for row in rows if (lesson := _lesson_from_row(row)) is not None]


def _lesson_from_row(row: Row) -> PastRun | None:
    took = _actual_seconds(row)
    if _why_not(row, took):
        return None
    like = Similarity(row["framework"], row["gpu"], row["script"])
    return PastRun(like, row["analytic_seconds"], row["predicted_seconds"], took)


def _why_not(row: Row, took: float) -> str:
    """Why a job does not tell how good its prediction was; empty where it does."""
    state = JobState(row["state"])
    if not state.terminal:
        return "it has not ended"
    if state is not JobState.COMPLETED:
        return "it did not complete"
    if row["attempts"] != 1:
        return "it took several attempts"
    if (row["ran_at"], row["ran_on"]) != (row["backend"], row["instance_type"]):
        return "it ran elsewhere"
    return "" if took > 0 else "nobody knows how long it ran"


def _actual_seconds(row: Row) -> float:
    """By the runner's own clock where that has told."""
    told = reported_seconds(json.loads(row["facts"] or "{}"))
    if told is not None:
        return told
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
