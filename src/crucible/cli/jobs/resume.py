"""`crucible resume` and `rerun`: go on with a job that has ended, or run it once more."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible.cli.jobs.follow import end_of, submitted, watch
from crucible.cli.options.arguments import Job
from crucible.cli.session import Session
from crucible.client.request.submission import check_backends
from crucible.client.sdk.job_lookup import find_job
from crucible.core.views.jobs import JobView

Follow = Annotated[
    bool,
    typer.Option("--follow/--detach", "-f/-d", help="Follow it to its end (as it is), or print the id and return."),
]


def resume(
    ctx: typer.Context,
    job: Job,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="ID", help="Id or name, `latest` (unless given) or `best`."),
    ] = None,
    backend: Annotated[str | None, typer.Option("--backend", metavar="NAME", help="Go on at this place.")] = None,
    follow: Follow = True,
) -> int:
    """Go on with a job that has ended, from a checkpoint; returns its exit code.

    It stays the same job, with one more attempt. Ctrl-C detaches; the job goes on.
    """
    session = Session.of(ctx)
    with session.api() as api:
        before = find_job(api, job)
        check_backends(api, () if backend is None else (backend,))
        reopened = api.resume(before.id, checkpoint=checkpoint, backend=backend)
        if not follow:
            return submitted(session.out, reopened)
        session.out.say(f"Resumed {reopened.display_name}{_from(before, checkpoint)}")
        return watch(session.out, api, reopened, cursors=end_of(api, before))


def rerun(ctx: typer.Context, job: Job, follow: Follow = True) -> int:
    """Run a job once more, from what was recorded of it: code, environment, arguments, seed. Returns its exit code.

    It is a new job. Ctrl-C detaches; the job goes on.
    """
    session = Session.of(ctx)
    with session.api() as api:
        before = find_job(api, job)
        again = api.rerun(before.id)
        if not follow:
            return submitted(session.out, again)
        session.out.say(f"Submitted {again.display_name}: {before.display_name} once more")
        return watch(session.out, api, again)


def _from(before: JobView, checkpoint: str | None) -> str:
    if checkpoint is not None:
        return f" from checkpoint {checkpoint}"
    if before.checkpoint is None:
        return "; it has no checkpoint, so it begins anew"
    step = before.checkpoint.step
    return f" from {before.checkpoint.display_name}" + (f", step {step}" if step is not None else "")
