"""`crucible cancel`: end jobs, and see them ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

import typer

from crucible.cli.arguments import Jobs, Yes
from crucible.cli.session import Session
from crucible.client.api import Api
from crucible.client.finding import find_job
from crucible.client.views import JobView
from crucible.core.errors import TimedOut
from crucible.core.resources import format_duration, parse_duration

GRACE_SECONDS = 10.0
"""What a job has between TERM and KILL, where the server does not say."""

BEYOND_SECONDS = 20.0
"""How long after its grace a job is waited for."""

_POLL_SECONDS = 0.2


def cancel(
    ctx: typer.Context,
    jobs: Jobs,
    wait: Annotated[
        str | None, typer.Option("--wait", metavar="TIME", help="How long to wait; the grace and 20s unless given.")
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return at once, not when they have ended.")] = False,
    yes: Yes = False,
) -> int:
    """End jobs: TERM, then KILL after the grace; waits until they have ended.

    Several at once are asked about unless --yes.
    """
    session = Session.of(ctx)
    given = None if wait is None else parse_duration(wait)
    with session.api() as api:
        found = list({job.id: job for job in (find_job(api, ref) for ref in jobs)}.values())
        listed = ", ".join(job.called for job in found)
        if len(found) > 1 and not session.confirm(f"Cancel {len(found)} jobs: {listed}?", yes=yes):
            return 1
        asked = [api.cancel(job.id) for job in found]
        seconds = max(map(_grace, asked)) + BEYOND_SECONDS if given is None else given
        late = [] if no_wait else _wait(session, api, list(zip(found, asked, strict=True)), seconds)
        if no_wait:
            for before, after in zip(found, asked, strict=True):
                _tell(session, before, after)
    if late:
        raise _too_late(late, seconds)
    return 0


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
        pending = [(before, api.job(after.id)) for before, after in rest]


def _grace(job: JobView) -> float:
    return GRACE_SECONDS if job.grace_seconds is None else job.grace_seconds


def _tell(session: Session, before: JobView, after: JobView) -> None:
    if session.out.as_json:
        session.out.json(after.as_json())
    elif before.ended:
        session.out.say(f"{after.called} had already ended: {after.status}.")
    elif after.ended and after.status != "cancelled":
        session.out.say(f"{after.called} ended by itself meanwhile: {after.status}.")
    else:
        session.out.say(f"{after.called} {'cancelled' if after.ended else 'is being cancelled'}.")


def _too_late(late: Sequence[JobView], seconds: float) -> TimedOut:
    listed, one = ", ".join(job.called for job in late), late[0]
    return TimedOut(
        f"{listed} {'has' if len(late) == 1 else 'have'} not ended yet.",
        why=f"It was waited for {format_duration(seconds)}; the wish is kept and goes on being carried out.",
        fix=f"Look again with `crucible status {one.called}`; `crucible events {one.called}` says how far it is.",
        jobs=[job.id for job in late],
    )
