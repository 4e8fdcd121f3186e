"""A portrait: all that is stored of one job but its output, read in one snapshot."""

from __future__ import annotations

from sqlalchemy import Connection

from crucible.control import notes, queries, results
from crucible.control.estimates import forecast
from crucible.control.views import View


def portrait(conn: Connection, job: str, now: float) -> View:
    """Raises NotFound for a job that is not there."""
    world = queries.existing(conn, job)
    details = queries.details_of(conn, [attempt.id for attempt in world.attempts])
    return {
        **queries.shown(conn, world, details, now),
        "metrics": queries.latest_metrics(conn, job),
        "health": queries.judged(conn, world, details, now),
        "result": results.result_of_job(conn, job),
        "notes": [note.as_json() for note in notes.list_notes(conn, job)],
        "predicted_seconds": forecast.predicted_seconds(conn, job),
        "plan": forecast.stored_plan(conn, job),
    }
