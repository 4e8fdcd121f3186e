"""`crucible metrics` and `crucible compare`: a job's series, and jobs side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.options.common_options import Job, Jobs
from crucible.cli.output.format import format_job_cost, format_metric, format_name
from crucible.cli.output.output import sparkline
from crucible.client.sdk.job_lookup import find_job
from crucible.core.compute.resources import format_duration
from crucible.core.errors import NotFound
from crucible.core.views.comparisons import ComparedView, ComparisonView, LineView
from crucible.core.views.records import SeriesView


def metrics(
    ctx: typer.Context,
    job: Job,
    series: Annotated[
        list[str] | None, typer.Option("--series", metavar="NAME", help="Only this series. Repeatable.")
    ] = None,
    points: Annotated[
        int, typer.Option("--points", metavar="N", min=1, max=10_000, help="Points per series (default: 500).")
    ] = 500,
) -> None:
    """Show a job's metrics as sparklines."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        one = find_job(api, job)
        view = api.metrics(one.id, series=series or (), points=points)
    missing = [name for name in series or () if name not in view.series]
    if missing:
        raise NotFound(
            f"{one.display_name} has no series {missing[0]!r}.",
            fix=f"`crucible metrics {one.display_name}` lists them.",
        )
    if cli.out.as_json:
        cli.out.json(view.as_json())
    elif not view.series:
        cli.out.say("The job has no metrics yet.")
    else:
        rows = (_series_row(name, item) for name, item in sorted(view.series.items()))
        cli.out.table(("SERIES", "TREND", "MIN", "LAST", "MAX", "COUNT"), rows)


def _series_row(name: str, one: SeriesView) -> tuple[str, ...]:
    values = [point[1] for point in one.points if point[1] is not None]
    numbers = (format_metric(name, value) for value in (one.min, one.last, one.max))
    return (name, sparkline(values), *numbers, str(one.count))


DIFFERS, WINS = "≠", " *"


def compare(
    ctx: typer.Context,
    jobs: Jobs,
    all_lines: Annotated[bool, typer.Option("--all", help="Also show rows that do not differ.")] = False,
) -> None:
    """Compare jobs side by side."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        comparison = api.compare(find_job(api, job).id for job in jobs)
    if cli.out.as_json:
        cli.out.json(comparison.as_json())
        return
    cli.out.table(("", "", *(job.display_name for job in comparison.jobs)), _rows(comparison, all_lines))
    cli.out.say(f"{DIFFERS} differs ·{WINS} best" + ("" if all_lines else " · --all also shows equal rows"))


def _rows(comparison: ComparisonView, all_lines: bool) -> Iterator[tuple[str, ...]]:
    yield from _head_rows(comparison.jobs)
    for line in comparison.config:
        if line.differs or (all_lines and any(value is not None for value in line.values)):
            yield _line_row(line.name, line)
    for kind, lines in (("last", comparison.metrics.last), ("best", comparison.metrics.best)):
        for line in lines:
            yield _line_row(f"{line.name} ({kind})", line)


def _head_rows(jobs: Sequence[ComparedView]) -> Iterator[tuple[str, ...]]:
    heads = (
        ("name", [format_name(job) for job in jobs]),
        ("status", [job.status for job in jobs]),
        ("health", [(job.verdict or "").replace("_", " ") for job in jobs]),
        ("ran", [_ran(job) for job in jobs]),
        ("cost", [format_job_cost(job) for job in jobs]),
    )
    for name, values in heads:
        yield (DIFFERS if len(set(values)) > 1 else "", name, *values)


def _ran(job: ComparedView) -> str:
    return format_duration(job.ran_seconds) if job.ran_seconds is not None else ""


def _line_row(name: str, line: LineView) -> tuple[str, ...]:
    cells = [
        _cell(line.name, value) + (WINS if index == line.winner else "") for index, value in enumerate(line.values)
    ]
    return (DIFFERS if line.differs else "", name, *cells)


def _cell(name: str, value: str | int | float | bool | None) -> str:
    if value is None:
        return "-"
    return format_metric(name, value) if isinstance(value, float) else str(value)
