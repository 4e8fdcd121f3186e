"""`crucible status`, `jobs` and `events`: what runs, what ran, and what happened."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from crucible.cli.options import filters
from crucible.cli.options.arguments import NAMED, Job
from crucible.cli.output.attempts import attempt_lines, condition_words, short_conditions
from crucible.cli.output.format import (
    age_words,
    amount_words,
    command_words,
    health_words,
    lasted,
    money_words,
    name_words,
    place_words,
    plan_words,
    progress_words,
    python_words,
    reason_words,
    remaining_words,
    result_words,
)
from crucible.cli.output.output import Output
from crucible.cli.session import Session
from crucible.client.sdk.job_lookup import PAGE, find_job, iterate_jobs
from crucible.core.compute.resources import format_duration
from crucible.core.views.jobs import JobView

_COMMAND = 60


def status(ctx: typer.Context, job: Annotated[str | None, typer.Argument(metavar="[ID]", help=NAMED)] = None) -> None:
    """Show all active jobs, or one job."""
    session = Session.of(ctx)
    with session.api() as api:
        if job is None:
            _list(session.out, api.jobs(active=True, limit=PAGE).items, "No job is active.")
        else:
            _one(session.out, find_job(api, job))


def jobs(
    ctx: typer.Context,
    status: filters.Status = None,
    active: filters.Active = False,
    backend: filters.Backend = None,
    kind: filters.Kind = None,
    project: filters.Project = None,
    name: filters.Name = None,
    tag: filters.Tag = None,
    text: filters.Text = None,
    since: filters.Since = None,
    until: filters.Until = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, max=100_000, help="At most this many.")
    ] = 20,
    all: Annotated[bool, typer.Option("--all", "-a", help="However many there are.")] = False,
) -> None:
    """List jobs, newest first."""
    session = Session.of(ctx)
    wanted = filters.read_filter(ctx.params)
    with session.api() as api:
        found = tuple(iterate_jobs(api, wanted, None if all else limit))
        none = "There are no jobs yet. Try: crucible run train.py" if wanted.empty else "There is no such job."
        _list(session.out, found, none)


def events(ctx: typer.Context, job: Job) -> None:
    """List what happened to a job."""
    session = Session.of(ctx)
    with session.api() as api:
        found, after = find_job(api, job).id, 0
        while page := api.events(found, after=after):
            for event in page:
                if session.out.as_json:
                    session.out.json(event.as_json())
                else:
                    details = json.dumps(event.data) if event.data else ""
                    session.out.data(f"{event.n:>4}  {event.at}  {event.type}  {details}".rstrip())
            after = page[-1].n


def _list(out: Output, found: Sequence[JobView], none: str) -> None:
    if out.as_json:
        out.json({"items": [job.as_json() for job in found]})
    elif out.quiet:
        for job in found:
            out.data(job.id)
    elif not found:
        out.say(none)
    else:
        heads = ("JOB", "NAME", "STATUS", "BACKEND", "AGE", "RAN", "COST", "PROGRESS", "COMMAND", "PYTHON")
        out.table(heads, (_row(job) for job in found))


def _row(job: JobView) -> tuple[str, ...]:
    seconds = lasted(job)
    return (
        job.display_name,
        name_words(job),
        _state(job),
        job.backend or "",
        age_words(job),
        format_duration(seconds) if seconds is not None else "",
        money_words(job),
        _news(job),
        command_words(job.command, _COMMAND),
        job.environment.interpreter or job.environment.origin,
    )


def _state(job: JobView) -> str:
    """The status, finer where it matters, and what is so beside it."""
    finer = "" if job.status in (job.phase, "queued") else job.phase
    beside = ", ".join(part for part in (finer, short_conditions(job)) if part)
    return f"{job.status} ({beside})" if beside else job.status


def _news(job: JobView) -> str:
    """How far it is, why it waits, or why it ended so."""
    if job.ended:
        return " ".join(reason_words(job)[:1])
    if job.is_queued and job.waiting:
        return f"waiting: {job.waiting}"
    return "being cancelled" if job.desired == "cancel" else progress_words(job.progress)


def _one(out: Output, job: JobView) -> None:
    if out.as_json:
        out.json(job.as_json())
        return
    if out.quiet:
        out.data(job.id)
        return
    out.fields(_fields(job))
    if job.recent_logs:
        out.data("\nLast output:")
        for line in job.recent_logs[-10:]:
            out.data(f"  {line}")


def _fields(job: JobView) -> Iterator[tuple[str, str | None]]:
    seconds = lasted(job)
    yield "Job", job.display_name
    yield "Id", job.id
    yield "Name", job.name
    yield "Kind", job.kind if job.kind != "train" else None
    yield "Tags", ", ".join(job.tags)
    yield "Notes", "\n".join(f"{note.author}: {note.text}" for note in job.notes)
    yield "Command", command_words(job.command, 200)
    yield "Python", python_words(job.environment) if job.command else None
    yield "Status", job.status if job.status == job.phase else f"{job.status} ({job.phase})"
    yield "Why", "\n".join(reason_words(job))
    yield "Note", "\n".join(condition_words(job))
    yield "Simulated", "yes: its machines are processes of one computer" if job.is_simulated else None
    yield "Waiting", job.waiting if not job.ended else None
    yield "Priority", str(job.priority) if job.priority else None
    yield "Planned", plan_words(job)
    yield _place(job)
    yield "Progress", progress_words(job.progress)
    yield "Health", "\n".join(health_words(job.health)) if not job.is_queued else None
    yield "Checkpoint", _checkpoint(job)
    yield "Attempt", str(job.attempt) if job.attempt else None
    yield "Attempts", "\n".join(attempt_lines(job))
    yield "Moved", f"from {job.previous_backend} to {job.backend}" if job.previous_backend else None
    yield "Exit code", None if job.exit_code is None else str(job.exit_code)
    yield "Signal", str(job.signal) if job.signal else None
    yield "Result", result_words(job)
    yield "Created", job.created_at
    yield "Ran", format_duration(seconds) if seconds is not None else None
    yield "Cost", "; ".join(part for part in (money_words(job), remaining_words(job)) if part)
    yield "Metrics", ", ".join(f"{name}={amount_words(name, value)}" for name, value in _numbers(job))


def _checkpoint(job: JobView) -> str | None:
    if job.checkpoint is None:
        return None
    step = f" (step {job.checkpoint.step})" if job.checkpoint.step is not None else ""
    return f"{job.checkpoint.display_name}{step}; crucible checkpoints {job.display_name}"


def _place(job: JobView) -> tuple[str, str | None]:
    """Where it runs, ran or will run; one that ended before it began ran nowhere."""
    place = place_words(job) or job.backend
    if job.is_queued:
        return "Will run on" if job.started_at is None else "Ran last on", place
    if not job.ended:
        return "Running on", place
    return "Ran on", place if job.started_at is not None else None


def _numbers(job: JobView) -> list[tuple[str, float]]:
    return [(name, value) for name, value in sorted(job.metrics.items()) if value is not None]
