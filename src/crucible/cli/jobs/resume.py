"""`crucible resume` and `rerun`: continue an ended job, or run it again."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.jobs.follow import end_of_output, follow_to_end, print_submitted
from crucible.cli.options.common_options import Job
from crucible.client.request.submission import check_backends
from crucible.client.sdk.job_lookup import find_job
from crucible.core.views.jobs import JobView

Follow = Annotated[
    bool,
    typer.Option(
        "--follow/--detach", "-f/-d", help="Follow the job to its end, or print its ID and return (default: follow)."
    ),
]


def resume(
    ctx: typer.Context,
    job: Job,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="ID", help="Checkpoint ID or name, `latest` or `best` (default: latest)."),
    ] = None,
    backend: Annotated[
        str | None, typer.Option("--backend", metavar="NAME", help="Backend to continue on (default: the job's own).")
    ] = None,
    follow: Follow = True,
) -> int:
    """Resume an ended job from a checkpoint; return its exit code.

    The job keeps its ID and gets another attempt. Ctrl-C detaches; the job continues.
    """
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        before = find_job(api, job)
        check_backends(api, () if backend is None else (backend,))
        reopened = api.resume(before.id, checkpoint=checkpoint, backend=backend)
        if not follow:
            return print_submitted(cli.out, reopened)
        cli.out.say(f"Resumed {reopened.display_name}{_describe_start(before, checkpoint)}")
        return follow_to_end(cli.out, api, reopened, cursors=end_of_output(api, before))


def rerun(ctx: typer.Context, job: Job, follow: Follow = True) -> int:
    """Run a job again as a new job with the recorded code, environment, arguments and seed; return its exit code.

    Ctrl-C detaches; the job continues.
    """
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        before = find_job(api, job)
        again = api.rerun(before.id)
        if not follow:
            return print_submitted(cli.out, again)
        cli.out.say(f"Submitted {again.display_name}, a rerun of {before.display_name}")
        return follow_to_end(cli.out, api, again)


def _describe_start(before: JobView, checkpoint: str | None) -> str:
    if checkpoint is not None:
        return f" from checkpoint {checkpoint}"
    if before.checkpoint is None:
        return " from the start: it has no checkpoint"
    step = before.checkpoint.step
    return f" from {before.checkpoint.display_name}" + (f", step {step}" if step is not None else "")
