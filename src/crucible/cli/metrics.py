"""`crucible metrics`: each series as a sparkline with its least, last and greatest value."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible.cli.output import sparkline
from crucible.cli.session import Session
from crucible.client.views import SeriesView
from crucible.core.errors import NotFound


def metrics(
    ctx: typer.Context,
    job: Annotated[str, typer.Argument(help="Id, short id, an ending of it, or `last`.")],
    series: Annotated[list[str] | None, typer.Option("--series", help="Only these. Repeatable.")] = None,
    points: Annotated[int, typer.Option("--points", min=1, max=10_000, help="Points per series.")] = 500,
) -> None:
    """Show a job's metrics."""
    session = Session.of(ctx)
    with session.api() as api:
        found = api.metrics(job, series=series or (), points=points)
    missing = [name for name in series or () if name not in found.series]
    if missing:
        raise NotFound(f"The job has no series {missing[0]!r}.", fix=f"crucible metrics {job} lists them.")
    if session.out.as_json:
        session.out.json(found.as_json())
    elif not found.series:
        session.out.say("The job has no metrics yet.")
    else:
        rows = (_row(name, one) for name, one in sorted(found.series.items()))
        session.out.table(("SERIES", "TREND", "MIN", "LAST", "MAX", "COUNT"), rows)


def _row(name: str, one: SeriesView) -> tuple[str, ...]:
    values = [point[1] for point in one.points if point[1] is not None]
    return (name, sparkline(values), _number(one.min), _number(one.last), _number(one.max), str(one.count))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
