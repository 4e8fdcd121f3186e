"""`crucible status`, `jobs` and `events`: what runs, what ran, and what happened."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer

from crucible.cli.output import Output
from crucible.cli.session import Session
from crucible.cli.words import age_words, cost_words, lasted, place_words, progress_words, reason_words
from crucible.client.api import Api
from crucible.client.views import JobView
from crucible.core.errors import UnknownName
from crucible.core.resources import format_duration

STATUSES = ("queued", "running", "completed", "failed", "cancelled")
PAGE = 500


def status(
    ctx: typer.Context,
    job: Annotated[str | None, typer.Argument(help="Id, short id, an ending of it, or `last`.")] = None,
) -> None:
    """Show all active jobs, or one job."""
    session = Session.of(ctx)
    with session.api() as api:
        if job is None:
            _list(session.out, api.jobs(active=True, limit=PAGE).items, "No job is active.")
        else:
            _one(session.out, api.job(job))


def jobs(
    ctx: typer.Context,
    status: Annotated[list[str] | None, typer.Option("--status", help="Only these. Repeatable.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="At most this many.")] = 20,
) -> None:
    """List jobs, newest first."""
    session = Session.of(ctx)
    wanted = [_status(name) for item in status or () for name in item.split(",")]
    with session.api() as api:
        _list(session.out, _pages(api, wanted, limit), "There are no jobs yet. Try: crucible run train.py")


def events(
    ctx: typer.Context, job: Annotated[str, typer.Argument(help="Id, short id, an ending of it, or `last`.")]
) -> None:
    """List what happened to a job."""
    session = Session.of(ctx)
    with session.api() as api:
        after = 0
        while found := api.events(job, after=after):
            for event in found:
                if session.out.as_json:
                    session.out.json(event.as_json())
                else:
                    details = json.dumps(event.data) if event.data else ""
                    session.out.data(f"{event.n:>4}  {event.at}  {event.type}  {details}".rstrip())
            after = found[-1].n


def _pages(api: Api, wanted: Sequence[str], limit: int) -> tuple[JobView, ...]:
    found: list[JobView] = []
    cursor: str | None = None
    while len(found) < limit:
        page = api.jobs(statuses=wanted, limit=min(limit - len(found), PAGE), cursor=cursor)
        found.extend(page.items)
        cursor = page.next
        if cursor is None or not page.items:
            break
    return tuple(found)


def _status(name: str) -> str:
    if name not in STATUSES:
        raise UnknownName("status", name, STATUSES)
    return name


def _list(out: Output, found: Sequence[JobView], none: str) -> None:
    if out.as_json:
        out.json({"items": [job.as_json() for job in found]})
    elif out.quiet:
        for job in found:
            out.data(job.id)
    elif not found:
        out.say(none)
    else:
        heads = ("JOB", "NAME", "STATUS", "BACKEND", "AGE", "RAN", "COST", "PROGRESS")
        out.table(heads, (_row(job) for job in found))


def _row(job: JobView) -> tuple[str, ...]:
    seconds = lasted(job)
    return (
        job.called,
        job.name or "",
        job.status if job.status in (job.phase, "queued") else f"{job.status} ({job.phase})",
        job.backend or "",
        age_words(job),
        format_duration(seconds) if seconds is not None else "",
        cost_words(job.cost),
        progress_words(job.progress) if not job.ended else " ".join(reason_words(job)[:1]),
    )


def _one(out: Output, job: JobView) -> None:
    if out.as_json:
        out.json(job.as_json())
        return
    if out.quiet:
        out.data(job.id)
        return
    seconds = lasted(job)
    out.fields(
        (
            ("Job", job.id),
            ("Name", job.name),
            ("Status", job.status if job.status == job.phase else f"{job.status} ({job.phase})"),
            ("Why", " ".join(reason_words(job))),
            ("Waiting", job.waiting),
            ("Running on" if not job.ended else "Ran on", place_words(job) or job.backend),
            ("Progress", progress_words(job.progress)),
            ("Attempt", str(job.attempt) if job.attempt else None),
            ("Exit code", None if job.exit_code is None else str(job.exit_code)),
            ("Signal", str(job.signal) if job.signal else None),
            ("Created", job.created_at),
            ("Ran", format_duration(seconds) if seconds is not None else None),
            ("Cost", cost_words(job.cost)),
            ("Metrics", ", ".join(f"{name}={value:.4g}" for name, value in _numbers(job))),
        )
    )
    if job.recent_logs:
        out.data("\nLast output:")
        for line in job.recent_logs[-10:]:
            out.data(f"  {line}")


def _numbers(job: JobView) -> list[tuple[str, float]]:
    return [(name, value) for name, value in sorted(job.metrics.items()) if value is not None]
