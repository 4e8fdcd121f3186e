"""`crucible download`: fetch what a job left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crucible.cli.options.arguments import Job
from crucible.cli.session import Session
from crucible.client.sdk.downloads import LocalFile, local_file, refuse_to_overwrite, select_artifacts
from crucible.client.sdk.downloads import download as fetch
from crucible.client.sdk.job_lookup import find_job
from crucible.core.compute.resources import format_memory
from crucible.core.views.records import ArtifactView


def download(
    ctx: typer.Context,
    job: Job,
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH…]", help="Artifacts, folders or patterns; all unless given."),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Folder to write to; one named after the job else.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")] = False,
) -> None:
    """Fetch a job's artifacts. An interrupted download goes on where it stopped; each file is checked.

    A file that is there and differs is never overwritten unless --force.
    """
    session = Session.of(ctx)
    with session.api() as api:
        found = find_job(api, job)
        into = (to or Path(found.display_name)).absolute()
        chosen = select_artifacts(api.artifacts(found.id), paths or ())
        if not chosen:
            session.out.say(f"{found.display_name} has no artifacts. A job leaves them in $CRUCIBLE_OUTPUT_DIR.")
        if not force:
            refuse_to_overwrite(chosen, into)
        there = [item for item in chosen if local_file(item, into) is LocalFile.INTACT]
        for artifact in chosen:
            path = fetch(api, found.id, artifact, into)
            if session.out.as_json:
                session.out.json({**artifact.as_json(), "file": str(path)})
            else:
                session.out.data(str(path))
        if chosen:
            session.out.say(_sum(chosen, there, into))


def _sum(chosen: tuple[ArtifactView, ...], there: list[ArtifactView], into: Path) -> str:
    size = format_memory(sum(item.size for item in chosen))
    already = "" if not there else f"; {'all' if len(there) == len(chosen) else len(there)} already there"
    return f"{len(chosen)} file{'s' if len(chosen) > 1 else ''}, {size}, in {into}{already}"
