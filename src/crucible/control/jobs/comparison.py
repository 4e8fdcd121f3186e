"""Compare jobs: their settings, metrics, duration, cost and health side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import Connection

from crucible.control.reconcile import repository
from crucible.control.telemetry import points
from crucible.core.errors import BadInput
from crucible.core.health import SYSTEM
from crucible.core.job.comparison import ComparedJob, ComparisonRow, SeriesSummary, Value, compare_jobs, parse_arguments
from crucible.core.views.comparisons import ComparedView, ComparisonView, LineView, MeasuresView
from crucible.core.views.jobs import BriefJobView, JobView

MIN_JOBS, MAX_JOBS = 2, 20


def check_count(refs: Sequence[str]) -> None:
    if not MIN_JOBS <= len(refs) <= MAX_JOBS:
        raise BadInput(
            f"{len(refs)} {'job' if len(refs) == 1 else 'jobs'} cannot be compared.",
            why=f"A comparison takes {MIN_JOBS} to {MAX_JOBS} jobs.",
            fix="Name each of them: crucible compare ID ID …",
        )


def comparison_view(conn: Connection, jobs: Sequence[JobView]) -> ComparisonView:
    """Return the jobs side by side, in this order, each with its health."""
    comparison = compare_jobs([ComparedJob(_config(job), _measures(conn, job.id)) for job in jobs])
    return ComparisonView(
        jobs=tuple(map(_job, jobs)),
        config=_lines(comparison.config),
        metrics=MeasuresView(last=_lines(comparison.last), best=_lines(comparison.best)),
    )


def _lines(lines: Sequence[ComparisonRow]) -> tuple[LineView, ...]:
    return tuple(
        LineView(name=line.name, values=line.values, differs=line.differs, winner=line.winner) for line in lines
    )


def _job(job: JobView) -> ComparedView:
    brief = {name: getattr(job, name) for name in BriefJobView.model_fields}
    return ComparedView(**brief, verdict=job.health.verdict if job.health else None)


def _config(job: JobView) -> dict[str, Value]:
    """Return the job's settings without its environment variables, which may hold secrets."""
    source = job.source
    return {
        **{f"--{name}" if name != "command" else name: value for name, value in parse_arguments(job.command).items()},
        "kind": job.kind,
        "tier": job.tier,
        "backend": job.backend,
        "market": job.market,
        "rerun_of": job.rerun_of,
        **{f"resources.{name}": _value(value) for name, value in job.resources.model_dump().items()},
        "source.kind": source.kind,
        "source.path": source.path,
        "source.url": source.url,
        "source.commit": source.commit,
        "source.dirty": source.dirty,
        "python": job.environment.interpreter or job.environment.origin,
        "tags": ", ".join(job.tags),
    }


def _value(value: object) -> Value:
    return value if value is None or isinstance(value, str | int | float | bool) else json.dumps(value, default=str)


def _measures(conn: Connection, job: str) -> dict[str, SeriesSummary]:
    """Return the summary of each series of the latest attempt that reported any."""
    for attempt in reversed(repository.load_attempts(conn, job)):
        summaries = points.summarize(conn, attempt.id)
        if summaries:
            return {name: SeriesSummary(*summary) for name, summary in summaries.items() if not name.startswith(SYSTEM)}
    return {}
