"""`crucible predictions`: how long jobs were said to take, and how long they took."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible.cli.output.output import Listing
from crucible.cli.session import Session
from crucible.core.compute.resources import format_duration
from crucible.core.views.plans import AccuracyView
from crucible.core.views.predictions import PredictionView

HEADS = ("JOB", "NAME", "PLACE", "PREDICTED", "TOOK", "ERROR")
NOTHING = "No job has a prediction yet. `crucible run train.py` makes one if the code says how long it takes."


def predictions(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="At most so many.")] = 50,
) -> None:
    """Show how long jobs were said to take and how long they took, newest first.

    ERROR is + where it was less than said, and counts for jobs that completed at the first try where it was said.
    """
    session = Session.of(ctx)
    with session.api() as api:
        page = api.newest_predictions(limit)
    shown = Listing(HEADS, _row, lambda one: one.short, NOTHING)
    session.out.listing(page.items, shown, accuracy=page.accuracy.as_json())
    words = accuracy_words(page.accuracy)
    if words and not session.out.as_json:
        session.out.say(words)


def accuracy_words(found: AccuracyView) -> str:
    """How good predictions have been, in a line; empty where none has been put to the test."""
    if not found.count or found.median_error is None or found.close is None:
        return ""
    jobs = "1 job" if found.count == 1 else f"{found.count} jobs"
    return f"Predictions of {jobs} here: half were within {found.median_error:.0%}, {found.close:.0%} within 15%."


def _row(one: PredictionView) -> tuple[str, ...]:
    return (
        one.short,
        one.name or "",
        " ".join(part for part in (one.backend, one.gpu) if part),
        _time(one.predicted_seconds),
        _time(one.took_seconds),
        one.why_not or _error(one),
    )


def _time(seconds: float | None) -> str:
    """Short times with a tenth: an error is not to be guessed from rounded ones."""
    if seconds is None:
        return ""
    return f"{seconds:.1f}s" if seconds < 10 else format_duration(seconds)


def _error(one: PredictionView) -> str:
    if not one.took_seconds:
        return ""
    return f"{(one.predicted_seconds - one.took_seconds) / one.took_seconds:+.0%}"
