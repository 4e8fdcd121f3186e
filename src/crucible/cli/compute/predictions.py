"""`crucible predictions`: predicted and actual run times of jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.output.output import ListFormat
from crucible.core.compute.resources import format_duration
from crucible.core.views.plans import AccuracyView
from crucible.core.views.predictions import PredictionView

HEADS = ("JOB", "NAME", "BACKEND", "PREDICTED", "TOOK", "ERROR")
NOTHING = (
    "No job has a prediction yet. `crucible run train.py` makes one if its run time can be estimated from the code."
)


def predictions(
    ctx: typer.Context,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="Maximum number of jobs (default: 50).")
    ] = 50,
) -> None:
    """List predicted and actual job run times, newest first.

    ERROR is positive if a job took less time than predicted. Only jobs that completed in their first attempt on the
    predicted machine count.
    """
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        page = api.newest_predictions(limit)
    list_format = ListFormat(HEADS, _row, lambda one: one.short, NOTHING)
    cli.out.print_list(page.items, list_format, accuracy=page.accuracy.as_json())
    words = format_accuracy(page.accuracy)
    if words and not cli.out.as_json:
        cli.out.say(words)


def format_accuracy(accuracy: AccuracyView) -> str:
    """Return how accurate predictions have been, in a line; empty without completed predictions."""
    if not accuracy.count or accuracy.median_error is None or accuracy.close is None:
        return ""
    jobs = "1 job" if accuracy.count == 1 else f"{accuracy.count} jobs"
    return f"Predictions of {jobs} here: half were within {accuracy.median_error:.0%}, {accuracy.close:.0%} within 15%."


def _row(one: PredictionView) -> tuple[str, ...]:
    return (
        one.short,
        one.name or "",
        " ".join(part for part in (one.backend, one.gpu) if part),
        _format_time(one.predicted_seconds),
        _format_time(one.took_seconds),
        one.why_not or _format_error(one),
    )


def _format_time(seconds: float | None) -> str:
    """Return the time, with tenths below 10 seconds: rounded times would not match the error."""
    if seconds is None:
        return ""
    return f"{seconds:.1f}s" if seconds < 10 else format_duration(seconds)


def _format_error(one: PredictionView) -> str:
    if not one.took_seconds:
        return ""
    return f"{(one.predicted_seconds - one.took_seconds) / one.took_seconds:+.0%}"
