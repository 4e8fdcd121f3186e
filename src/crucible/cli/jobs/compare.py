"""`crucible compare`: jobs side by side, what differs marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from crucible.cli.options.arguments import Jobs
from crucible.cli.output.format import amount_words, money_words, name_words
from crucible.cli.session import Session
from crucible.client.sdk.job_lookup import find_job
from crucible.core.compute.resources import format_duration
from crucible.core.views.comparisons import ComparedView, ComparisonView, LineView

DIFFERS, WINS = "≠", " *"


def compare(
    ctx: typer.Context,
    jobs: Jobs,
    all_lines: Annotated[bool, typer.Option("--all", help="Also what is the same everywhere.")] = False,
) -> None:
    """Show jobs side by side."""
    session = Session.of(ctx)
    with session.api() as api:
        found = api.compare(find_job(api, job).id for job in jobs)
    if session.out.as_json:
        session.out.json(found.as_json())
        return
    session.out.table(("", "", *(job.display_name for job in found.jobs)), _rows(found, all_lines))
    session.out.say(f"{DIFFERS} differs ·{WINS} best" + ("" if all_lines else " · --all also shows what is the same"))


def _rows(found: ComparisonView, all_lines: bool) -> Iterator[tuple[str, ...]]:
    yield from _heads(found.jobs)
    for line in found.config:
        if line.differs or (all_lines and any(value is not None for value in line.values)):
            yield _row(line.name, line)
    for kind, lines in (("last", found.metrics.last), ("best", found.metrics.best)):
        for line in lines:
            yield _row(f"{line.name} ({kind})", line)


def _heads(jobs: Sequence[ComparedView]) -> Iterator[tuple[str, ...]]:
    heads = (
        ("name", [name_words(job) for job in jobs]),
        ("status", [job.status for job in jobs]),
        ("health", [(job.verdict or "").replace("_", " ") for job in jobs]),
        ("ran", [_ran(job) for job in jobs]),
        ("cost", [money_words(job) for job in jobs]),
    )
    for name, values in heads:
        yield (DIFFERS if len(set(values)) > 1 else "", name, *values)


def _ran(job: ComparedView) -> str:
    return format_duration(job.ran_seconds) if job.ran_seconds is not None else ""


def _row(name: str, line: LineView) -> tuple[str, ...]:
    cells = [
        _cell(line.name, value) + (WINS if place == line.winner else "") for place, value in enumerate(line.values)
    ]
    return (DIFFERS if line.differs else "", name, *cells)


def _cell(name: str, value: str | int | float | bool | None) -> str:
    if value is None:
        return "-"
    return amount_words(name, value) if isinstance(value, float) else str(value)
