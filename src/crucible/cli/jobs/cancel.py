"""`crucible cancel`: cancel jobs and wait until they have ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.options import filters
from crucible.cli.options.common_options import Yes
from crucible.client.api import Api
from crucible.client.sdk.job_lookup import find_job
from crucible.core.compute.resources import format_duration, parse_duration
from crucible.core.errors import BadInput, TimedOut
from crucible.core.job.job_filter import JobFilter
from crucible.core.views.jobs import JobView

GRACE_SECONDS = 10.0
"""Default time between TERM and KILL, if the server does not say."""

BEYOND_SECONDS = 20.0
"""How long to wait for a job after its grace period."""

MOST_NAMED = 10
"""How many jobs the confirmation names."""

_POLL_SECONDS = 0.2


def cancel(
    ctx: typer.Context,
    jobs: Annotated[
        list[str] | None, typer.Argument(metavar="[ID…]", help="Job IDs, short IDs, ends of IDs, names, or `last`.")
    ] = None,
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
    wait: Annotated[
        str | None,
        typer.Option("--wait", metavar="TIME", help="How long to wait (default: the grace period plus 20s)."),
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Return at once, without waiting for the jobs to end.")
    ] = False,
    yes: Yes = False,
) -> int:
    """Cancel jobs: send TERM, then KILL after the grace period, and wait until they have ended.

    Takes IDs, or options that select jobs that have not ended. Asks before cancelling several, unless --yes.
    """
    cli = CommandContext.from_typer(ctx)
    limit = None if wait is None else parse_duration(wait)
    job_filter = _check_selection(jobs, filters.read_filter(ctx.params))
    with cli.api() as api:
        selected = _find_jobs(api, jobs or ()) if job_filter is None else _matching_jobs(cli, api, job_filter)
        if not selected or not _confirm(cli, selected, always=job_filter is not None, yes=yes):
            return 1 if selected else 0
        cancelled = [api.cancel(job.id) for job in selected] if job_filter is None else _cancel_all(api, selected)
        seconds = max(map(_grace, cancelled)) + BEYOND_SECONDS if limit is None else limit
        unfinished = [] if no_wait else _wait(cli, api, list(zip(selected, cancelled, strict=True)), seconds)
        if no_wait:
            for before, after in zip(selected, cancelled, strict=True):
                _print_result(cli, before, after)
    if unfinished:
        raise _timed_out(unfinished, seconds)
    return 0


def _check_selection(jobs: Sequence[str] | None, job_filter: JobFilter) -> JobFilter | None:
    """Return the filter, or None if jobs are named."""
    if jobs and not job_filter.empty:
        raise BadInput("Job IDs and filter options exclude each other.", fix="Leave out the IDs or the options.")
    if not jobs and job_filter.empty:
        raise BadInput(
            "No jobs selected.", fix="Name them (crucible cancel ID) or filter them (crucible cancel --tag old)."
        )
    return None if jobs else job_filter


def _find_jobs(api: Api, refs: Sequence[str]) -> list[JobView]:
    return list({job.id: job for job in (find_job(api, ref) for ref in refs)}.values())


def _matching_jobs(cli: CommandContext, api: Api, job_filter: JobFilter) -> list[JobView]:
    page = api.bulk.cancel(job_filter, dry_run=True)
    if page.more:
        cli.out.say(
            f"More than {page.jobs} jobs match; only the newest are selected. Run the command again for the rest."
        )
    if not page.matching_jobs:
        cli.out.say("No active job matches.")
    return list(page.matching_jobs)


def _confirm(cli: CommandContext, selected: Sequence[JobView], *, always: bool, yes: bool) -> bool:
    """Ask before cancelling, except for a single named job."""
    if len(selected) == 1 and not always:
        return True
    rest = len(selected) - MOST_NAMED
    names = ", ".join(job.display_name for job in selected[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
    count = f"{len(selected)} job{'s' if len(selected) > 1 else ''}"
    return cli.confirm(f"Cancel {count}: {names}?", yes=yes)


def _cancel_all(api: Api, selected: Sequence[JobView]) -> list[JobView]:
    """Cancel exactly the jobs that were confirmed, not others that match by now."""
    return _cancel_by_id(api, [job.id for job in selected], dry_run=False)


def _cancel_by_id(api: Api, ids: Sequence[str], *, dry_run: bool) -> list[JobView]:
    known = {job.id: job for job in api.bulk.cancel(ids=ids, dry_run=dry_run).matching_jobs}
    return [known[job] for job in ids]


def _wait(cli: CommandContext, api: Api, pending: list[tuple[JobView, JobView]], seconds: float) -> list[JobView]:
    """Print each job as it ends; return those that have not ended in time.

    `pending` holds each job as it was before and after the request.
    """
    deadline = time.monotonic() + seconds
    while True:
        rest = []
        for before, after in pending:
            if after.ended:
                _print_result(cli, before, after)
            else:
                rest.append((before, after))
        if not rest or time.monotonic() > deadline:
            return [after for _, after in rest]
        time.sleep(_POLL_SECONDS)
        current = _refresh(api, [after.id for _, after in rest])
        pending = [(before, after) for (before, _), after in zip(rest, current, strict=True)]


def _refresh(api: Api, ids: Sequence[str]) -> list[JobView]:
    return [api.job(ids[0])] if len(ids) == 1 else _cancel_by_id(api, ids, dry_run=True)


def _grace(job: JobView) -> float:
    return GRACE_SECONDS if job.grace_seconds is None else job.grace_seconds


def _print_result(cli: CommandContext, before: JobView, after: JobView) -> None:
    if cli.out.as_json:
        cli.out.json(after.as_json())
    elif before.ended:
        cli.out.say(f"{after.display_name} had already ended: {after.status}.")
    elif after.ended and after.status != "cancelled":
        cli.out.say(f"{after.display_name} ended on its own before the cancellation: {after.status}.")
    else:
        cli.out.say(f"{after.display_name} {'cancelled' if after.ended else 'is being cancelled'}.")


def _timed_out(unfinished: Sequence[JobView], seconds: float) -> TimedOut:
    names, one = ", ".join(job.display_name for job in unfinished), unfinished[0]
    return TimedOut(
        f"{names} {'has' if len(unfinished) == 1 else 'have'} not ended yet.",
        why=f"The command waited {format_duration(seconds)}; the cancellation continues in the background.",
        fix=f"Check with `crucible status {one.display_name}` or `crucible events {one.display_name}`.",
        jobs=[job.id for job in unfinished],
    )
