"""`crucible attach`: a running job's output as it comes, to the job's end."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from crucible.cli.jobs.follow import end_of, watch
from crucible.cli.options.arguments import Job
from crucible.cli.output.format import end_words
from crucible.cli.session import Session
from crucible.client.api import Api
from crucible.client.sdk.job_lookup import find_job
from crucible.core.errors import BadInput
from crucible.core.views.frames import Cursors
from crucible.core.views.jobs import JobView


def attach(
    ctx: typer.Context,
    job: Job,
    since_start: Annotated[
        bool, typer.Option("--since-start", help="All output of this try, not only what comes from now on.")
    ] = False,
    shell: Annotated[bool, typer.Option("--shell", help="A shell where it runs instead, as `exec -t` opens.")] = False,
) -> int:
    """Show a job's output from now on, as `run` does; returns the job's exit code. Ctrl-C detaches.

    One that waits is waited for. Nothing typed here reaches the program: it has no input.
    """
    session = Session.of(ctx)
    if shell and (since_start or session.out.as_json):
        raise BadInput("--shell stands alone.", fix="Leave the other options out.")
    with session.api() as api:
        found = find_job(api, job)
        if shell:
            from crucible.cli.jobs.exec import enter

            return enter(session, api, found, (), tty=True, stdin=sys.stdin is not None)
        if found.ended:
            return _ended(session, api, found)
        return watch(session.out, api, found, cursors=Cursors() if since_start else end_of(api, found))


def _ended(session: Session, api: Api, job: JobView) -> int:
    if session.out.as_json:
        session.out.json(api.job(job.id).as_json())
    else:
        session.out.say(f"{end_words(job)}. Its output: crucible logs {job.display_name}")
    return job.result_code
