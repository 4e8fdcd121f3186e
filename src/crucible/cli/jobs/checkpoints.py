"""`crucible checkpoints`: what a job saved on its way; one asked for, one fetched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from crucible.cli.options.arguments import Job
from crucible.cli.output.format import ago_words
from crucible.cli.output.output import Listing
from crucible.cli.session import Session
from crucible.client.api import Api
from crucible.client.sdk.downloads import as_file, download_checkpoint, refuse_to_overwrite
from crucible.client.sdk.job_lookup import find_job
from crucible.core.compute.resources import format_memory
from crucible.core.errors import BadInput
from crucible.core.views.jobs import CheckpointView, JobView


def checkpoints(
    ctx: typer.Context,
    job: Job,
    now: Annotated[bool, typer.Option("--now", help="Ask the running program to save one now.")] = False,
    download: Annotated[
        str | None, typer.Option("--download", metavar="ID", help="Fetch this one: id, name, `latest` or `best`.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="DIR", help="Folder to write to; one named after the job else.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that differs.")] = False,
) -> None:
    """List a job's checkpoints, newest first; ask for one with --now, fetch one with --download.

    A folder is fetched as a tar archive. `crucible resume JOB --checkpoint ID` goes on from one.
    """
    session = Session.of(ctx)
    if now and download is not None:
        raise BadInput("--now and --download exclude each other.", fix="Ask first, fetch when it is listed.")
    if output is not None and download is None:
        raise BadInput("--output says where to fetch to, but nothing is fetched.", fix="Add --download ID.")
    with session.api() as api:
        found = find_job(api, job)
        if now:
            _ask(session, api, found)
        elif download is not None:
            _fetch(session, api, found, download, (output or Path(found.display_name)).absolute(), force)
        else:
            session.out.listing(api.checkpoints(found.id), _checkpoints_of(found))


def _ask(session: Session, api: Api, job: JobView) -> None:
    asked = api.ask_checkpoint(job.id)
    if session.out.as_json:
        session.out.json(asked.as_json())
    else:
        session.out.say(
            f"{job.display_name} was asked to save a checkpoint. Once stored: crucible checkpoints {job.display_name}"
        )


def _fetch(session: Session, api: Api, job: JobView, ref: str, into: Path, force: bool) -> None:
    checkpoint = api.checkpoint(job.id, ref)
    if not force:
        refuse_to_overwrite([as_file(checkpoint)], into, folder="--output")
    path = download_checkpoint(api, job.id, checkpoint, into)
    if session.out.as_json:
        session.out.json({**checkpoint.as_json(), "file": str(path)})
        return
    session.out.data(str(path))
    unpack = f"; a folder, unpack it with: tar -xf {path}" if checkpoint.form == "folder" else ""
    session.out.say(f"{checkpoint.display_name}, {format_memory(checkpoint.size)}, checked{unpack}")


def _checkpoints_of(job: JobView) -> Listing[CheckpointView]:
    return Listing(
        ("CHECKPOINT", "STEP", "METRIC", "SIZE", "ATTEMPT", "AGE", "KEPT", "NAME"),
        _row,
        lambda item: item.id,
        f"{job.display_name} has no checkpoints. Files that appear whole in $CRUCIBLE_CHECKPOINT_DIR become some.",
    )


def _row(item: CheckpointView) -> tuple[str, ...]:
    marks = [name for name, there in (("latest", item.latest), ("best", item.best)) if there]
    return (
        item.display_name,
        "" if item.step is None else str(item.step),
        "" if item.metric is None else f"{item.metric:.4g}",
        format_memory(item.size),
        "" if item.attempt is None else str(item.attempt),
        ago_words(item.stored_at),
        ", ".join([*marks, *_kept(item, marks)]),
        item.file_name,
    )


def _kept(item: CheckpointView, marks: Sequence[str]) -> list[str]:
    """Why it is kept or went, without what a mark already says."""
    if not item.kept:
        return [f"removed: {item.why}" if item.why else "removed"]
    return [item.why] if item.why and item.why not in marks else []
