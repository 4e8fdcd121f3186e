"""`crucible status`, `jobs` and `events`: show jobs and what happened to them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.options import filters
from crucible.cli.options.common_options import JOB_HELP, Job
from crucible.cli.output.attempts import format_attempts, format_conditions, short_conditions
from crucible.cli.output.escape import plain_line
from crucible.cli.output.format import (
    format_age,
    format_command,
    format_health,
    format_job_cost,
    format_metric,
    format_name,
    format_placement,
    format_plan,
    format_progress,
    format_python,
    format_reason,
    format_remaining_cost,
    format_result,
    run_seconds,
)
from crucible.cli.output.output import Output
from crucible.client.sdk.job_lookup import PAGE, find_job, iterate_jobs
from crucible.core.compute.resources import format_duration
from crucible.core.views.jobs import JobView

_COMMAND = 60


def status(
    ctx: typer.Context, job: Annotated[str | None, typer.Argument(metavar="[ID]", help=JOB_HELP)] = None
) -> None:
    """Show all active jobs, or one job in detail."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        if job is None:
            _print_jobs(cli.out, api.jobs(active=True, limit=PAGE).items, "No job is active.")
        else:
            _print_job(cli.out, find_job(api, job))


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
        int,
        typer.Option("--limit", "-n", metavar="N", min=1, max=100_000, help="Maximum number of jobs (default: 20)."),
    ] = 20,
    all: Annotated[bool, typer.Option("--all", "-a", help="List all jobs.")] = False,
) -> None:
    """List jobs, newest first."""
    cli = CommandContext.from_typer(ctx)
    job_filter = filters.read_filter(ctx.params)
    with cli.api() as api:
        matching = tuple(iterate_jobs(api, job_filter, None if all else limit))
        none = "There are no jobs yet. Try: crucible run train.py" if job_filter.empty else "No job matches."
        _print_jobs(cli.out, matching, none)


def events(ctx: typer.Context, job: Job) -> None:
    """List a job's events."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        job_id, after = find_job(api, job).id, 0
        while page := api.events(job_id, after=after):
            for event in page:
                if cli.out.as_json:
                    cli.out.json(event.as_json())
                else:
                    details = json.dumps(event.data) if event.data else ""
                    cli.out.data(f"{event.n:>4}  {event.at}  {event.type}  {details}".rstrip())
            after = page[-1].n


def _print_jobs(out: Output, jobs: Sequence[JobView], none: str) -> None:
    if out.as_json:
        out.json({"items": [job.as_json() for job in jobs]})
    elif out.quiet:
        for job in jobs:
            out.data(job.id)
    elif not jobs:
        out.say(none)
    else:
        heads = ("JOB", "NAME", "STATUS", "BACKEND", "AGE", "RAN", "COST", "PROGRESS", "COMMAND", "PYTHON")
        out.table(heads, (_row(job) for job in jobs))


def _row(job: JobView) -> tuple[str, ...]:
    seconds = run_seconds(job)
    return (
        job.display_name,
        format_name(job),
        _state(job),
        job.backend or "",
        format_age(job),
        format_duration(seconds) if seconds is not None else "",
        format_job_cost(job),
        _progress(job),
        format_command(job.command, _COMMAND),
        job.environment.interpreter or job.environment.origin,
    )


def _state(job: JobView) -> str:
    """Return the status, with the phase where it says more, the priority if set, and the conditions."""
    finer = "" if job.status in (job.phase, "queued") else job.phase
    priority = f"priority {job.priority}" if job.priority else ""
    beside = ", ".join(part for part in (finer, priority, short_conditions(job)) if part)
    return f"{job.status} ({beside})" if beside else job.status


def _progress(job: JobView) -> str:
    """Return the progress, why the job waits, or why it ended."""
    if job.ended:
        return " ".join(format_reason(job)[:1])
    if job.is_queued and job.waiting:
        return f"waiting: {job.waiting}"
    return "being cancelled" if job.desired == "cancel" else format_progress(job.progress)


def _print_job(out: Output, job: JobView) -> None:
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
            out.data(f"  {plain_line(line)}")


def _fields(job: JobView) -> Iterator[tuple[str, str | Sequence[str] | None]]:
    seconds = run_seconds(job)
    yield "Job", job.display_name
    yield "Id", job.id
    yield "Name", job.name
    yield "Kind", job.kind if job.kind != "train" else None
    yield "Tags", ", ".join(job.tags)
    yield "Notes", [f"{note.author}: {note.text}" for note in job.notes]
    yield "Command", format_command(job.command, 200)
    yield "Python", format_python(job.environment) if job.command else None
    yield "Status", job.status if job.status == job.phase else f"{job.status} ({job.phase})"
    yield "Why", format_reason(job)
    yield "Note", format_conditions(job)
    yield "Simulated", "yes: its machines are local processes" if job.is_simulated else None
    yield "Waiting", job.waiting if not job.ended else None
    yield "Max wait", None if job.max_wait_seconds is None else format_duration(job.max_wait_seconds)
    yield "Outputs", None if job.outputs is None else ", ".join(job.outputs) or "none of its working directory"
    yield "Left out", job.outputs_left_out
    yield "Priority", str(job.priority) if job.priority else None
    yield "Market", f"{job.market}{', else on demand' if job.spot_fallback else ''}" if job.market else None
    yield "Planned", format_plan(job)
    yield _placement(job)
    yield "Progress", format_progress(job.progress)
    yield "Health", format_health(job.health) if not job.is_queued else None
    yield "Checkpoint", _checkpoint(job)
    yield "Attempt", str(job.attempt) if job.attempt else None
    yield "Attempts", tuple(format_attempts(job))
    yield "Moved", f"from {job.previous_backend} to {job.backend}" if job.previous_backend else None
    yield "Exit code", None if job.exit_code is None else str(job.exit_code)
    yield "Signal", str(job.signal) if job.signal else None
    yield "Result", format_result(job)
    yield "Created", job.created_at
    yield "Ran", format_duration(seconds) if seconds is not None else None
    yield "Cost", "; ".join(part for part in (format_job_cost(job), format_remaining_cost(job)) if part)
    yield "Metrics", ", ".join(f"{name}={format_metric(name, value)}" for name, value in _metrics(job))


def _checkpoint(job: JobView) -> str | None:
    if job.checkpoint is None:
        return None
    step = f" (step {job.checkpoint.step})" if job.checkpoint.step is not None else ""
    return f"{job.checkpoint.display_name}{step}; crucible checkpoints {job.display_name}"


def _placement(job: JobView) -> tuple[str, str | None]:
    """Return where the job runs, ran or will run; None if it ended before it started."""
    placement = format_placement(job) or job.backend
    if job.is_queued:
        return "Will run on" if job.started_at is None else "Ran last on", placement
    if not job.ended:
        return "Running on", placement
    return "Ran on", placement if job.started_at is not None else None


def _metrics(job: JobView) -> list[tuple[str, float]]:
    return [(name, value) for name, value in sorted(job.metrics.items()) if value is not None]
