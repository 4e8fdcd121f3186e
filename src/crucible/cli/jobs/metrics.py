"""`crucible metrics`: each series as a sparkline with its least, last and greatest value."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible.cli.options.arguments import Job
from crucible.cli.output.format import amount_words
from crucible.cli.output.output import sparkline
from crucible.cli.session import Session
from crucible.client.sdk.job_lookup import find_job
from crucible.core.errors import NotFound
from crucible.core.views.records import SeriesView


def metrics(
    ctx: typer.Context,
    job: Job,
    series: Annotated[
        list[str] | None, typer.Option("--series", metavar="NAME", help="Only these. Repeatable.")
    ] = None,
    points: Annotated[int, typer.Option("--points", metavar="N", min=1, max=10_000, help="Points per series.")] = 500,
) -> None:
    """Show a job's metrics."""
    session = Session.of(ctx)
    with session.api() as api:
        one = find_job(api, job)
        found = api.metrics(one.id, series=series or (), points=points)
    missing = [name for name in series or () if name not in found.series]
    if missing:
        raise NotFound(
            f"{one.display_name} has no series {missing[0]!r}.",
            fix=f"`crucible metrics {one.display_name}` lists them.",
        )
    if session.out.as_json:
        session.out.json(found.as_json())
    elif not found.series:
        session.out.say("The job has no metrics yet.")
    else:
        rows = (_row(name, item) for name, item in sorted(found.series.items()))
        session.out.table(("SERIES", "TREND", "MIN", "LAST", "MAX", "COUNT"), rows)


def _row(name: str, one: SeriesView) -> tuple[str, ...]:
    values = [point[1] for point in one.points if point[1] is not None]
    numbers = (amount_words(name, value) for value in (one.min, one.last, one.max))
    return (name, sparkline(values), *numbers, str(one.count))
