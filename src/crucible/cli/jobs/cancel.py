"""`crucible cancel`: end jobs, and see them ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

import typer

from crucible.cli.options import filters
from crucible.cli.options.arguments import Yes
from crucible.cli.session import Session
from crucible.client.api import Api
from crucible.client.sdk.job_lookup import find_job
from crucible.core.compute.resources import format_duration, parse_duration
from crucible.core.errors import BadInput, TimedOut
from crucible.core.job.job_filter import JobFilter
from crucible.core.views.jobs import JobView

GRACE_SECONDS = 10.0
"""What a job has between TERM and KILL, where the server does not say."""

BEYOND_SECONDS = 20.0
"""How long after its grace a job is waited for."""

MOST_NAMED = 10
"""Jobs that a question names."""

_POLL_SECONDS = 0.2


def cancel(
    ctx: typer.Context,
    jobs: Annotated[
        list[str] | None, typer.Argument(metavar="[ID…]", help="Ids, short ids, endings of them, names, or `last`.")
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
        str | None, typer.Option("--wait", metavar="TIME", help="How long to wait; the grace and 20s unless given.")
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return at once, not when they have ended.")] = False,
    yes: Yes = False,
) -> int:
    """End jobs: TERM, then KILL after the grace; waits until they have ended.

    Named one by one, or all that fit the options and have not ended. Several at once are asked about unless --yes.
    """
    session = Session.of(ctx)
    given = None if wait is None else parse_duration(wait)
    wanted = _which(jobs, filters.read_filter(ctx.params))
    with session.api() as api:
        found = _named(api, jobs or ()) if wanted is None else _fitting(session, api, wanted)
        if not found or not _agreed(session, found, always=wanted is not None, yes=yes):
            return 1 if found else 0
        asked = [api.cancel(job.id) for job in found] if wanted is None else _ask(api, found)
        seconds = max(map(_grace, asked)) + BEYOND_SECONDS if given is None else given
        late = [] if no_wait else _wait(session, api, list(zip(found, asked, strict=True)), seconds)
        if no_wait:
            for before, after in zip(found, asked, strict=True):
                _tell(session, before, after)
    if late:
        raise _too_late(late, seconds)
    return 0


def _which(jobs: Sequence[str] | None, wanted: JobFilter) -> JobFilter | None:
    """The filter, or None where jobs are named."""
    if jobs and not wanted.empty:
        raise BadInput("Jobs are named or found by options, not both.", fix="Leave out the ids, or the options.")
    if not jobs and wanted.empty:
        raise BadInput("Say which jobs to end.", fix="crucible cancel ID, or by options: crucible cancel --tag old")
    return None if jobs else wanted


def _named(api: Api, refs: Sequence[str]) -> list[JobView]:
    return list({job.id: job for job in (find_job(api, ref) for ref in refs)}.values())


def _fitting(session: Session, api: Api, wanted: JobFilter) -> list[JobView]:
    page = api.bulk.cancel(wanted, dry_run=True)
    if page.more:
        session.out.say(f"There are more than {page.jobs}; these are the newest. Then run the same command again.")
    if not page.matching_jobs:
        session.out.say("There is no such job that has not ended.")
    return list(page.matching_jobs)


def _agreed(session: Session, found: Sequence[JobView], *, always: bool, yes: bool) -> bool:
    """One job that was named is not asked about."""
    if len(found) == 1 and not always:
        return True
    rest = len(found) - MOST_NAMED
    listed = ", ".join(job.display_name for job in found[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
    count = f"{len(found)} job{'s' if len(found) > 1 else ''}"
    return session.confirm(f"Cancel {count}: {listed}?", yes=yes)


def _ask(api: Api, found: Sequence[JobView]) -> list[JobView]:
    """Those that were shown and agreed to, and no others that may have come since."""
    return _together(api, [job.id for job in found], dry_run=False)


def _together(api: Api, ids: Sequence[str], *, dry_run: bool) -> list[JobView]:
    known = {job.id: job for job in api.bulk.cancel(ids=ids, dry_run=dry_run).matching_jobs}
    return [known[job] for job in ids]


def _wait(session: Session, api: Api, pending: list[tuple[JobView, JobView]], seconds: float) -> list[JobView]:
    """Tell of each job as it ends; `pending` holds jobs before and after the wish. Returns those that are late."""
    deadline = time.monotonic() + seconds
    while True:
        rest = []
        for before, after in pending:
            if after.ended:
                _tell(session, before, after)
            else:
                rest.append((before, after))
        if not rest or time.monotonic() > deadline:
            return [after for _, after in rest]
        time.sleep(_POLL_SECONDS)
        fresh = _fresh(api, [after.id for _, after in rest])
        pending = [(before, after) for (before, _), after in zip(rest, fresh, strict=True)]


def _fresh(api: Api, ids: Sequence[str]) -> list[JobView]:
    return [api.job(ids[0])] if len(ids) == 1 else _together(api, ids, dry_run=True)


def _grace(job: JobView) -> float:
    return GRACE_SECONDS if job.grace_seconds is None else job.grace_seconds


def _tell(session: Session, before: JobView, after: JobView) -> None:
    if session.out.as_json:
        session.out.json(after.as_json())
    elif before.ended:
        session.out.say(f"{after.display_name} had already ended: {after.status}.")
    elif after.ended and after.status != "cancelled":
        session.out.say(f"{after.display_name} ended by itself meanwhile: {after.status}.")
    else:
        session.out.say(f"{after.display_name} {'cancelled' if after.ended else 'is being cancelled'}.")


def _too_late(late: Sequence[JobView], seconds: float) -> TimedOut:
    listed, one = ", ".join(job.display_name for job in late), late[0]
    return TimedOut(
        f"{listed} {'has' if len(late) == 1 else 'have'} not ended yet.",
        why=f"It was waited for {format_duration(seconds)}; the wish is kept and goes on being carried out.",
        fix=f"Look again with `crucible status {one.display_name}`; "
        f"`crucible events {one.display_name}` says how far it is.",
        jobs=[job.id for job in late],
    )
