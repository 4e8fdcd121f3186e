"""`crucible checkpoints` and `crucible download`: what a job stored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.options.common_options import Job
from crucible.cli.output.format import format_ago
from crucible.cli.output.output import ListFormat
from crucible.client.api import Api
from crucible.client.sdk.downloads import (
    LocalFile,
    as_file,
    download_checkpoint,
    local_file,
    refuse_to_overwrite,
    select_artifacts,
)
from crucible.client.sdk.downloads import download as fetch
from crucible.client.sdk.job_lookup import find_job
from crucible.core.compute.resources import format_memory
from crucible.core.errors import BadInput
from crucible.core.views.jobs import CheckpointView, JobView
from crucible.core.views.records import ArtifactView


def checkpoints(
    ctx: typer.Context,
    job: Job,
    now: Annotated[bool, typer.Option("--now", help="Ask the running program to save a checkpoint now.")] = False,
    download: Annotated[
        str | None,
        typer.Option("--download", metavar="ID", help="Download a checkpoint: its ID, name, `latest` or `best`."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="DIR", help="Output folder (default: named after the job).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that differs.")] = False,
) -> None:
    """List a job's checkpoints, newest first; request one with --now, download one with --download.

    A folder is downloaded as a tar archive. `crucible resume JOB --checkpoint ID` resumes from a checkpoint.
    """
    cli = CommandContext.from_typer(ctx)
    if now and download is not None:
        raise BadInput(
            "--now and --download exclude each other.",
            fix="Use --now first; download the checkpoint once it is listed.",
        )
    if output is not None and download is None:
        raise BadInput("--output needs --download.", fix="Add --download ID.")
    with cli.api() as api:
        view = find_job(api, job)
        if now:
            _request_checkpoint(cli, api, view)
        elif download is not None:
            _download(cli, api, view, download, (output or Path(view.display_name)).absolute(), force)
        else:
            cli.out.print_list(api.checkpoints(view.id), _list_format(view))


def _request_checkpoint(cli: CommandContext, api: Api, job: JobView) -> None:
    requested = api.ask_checkpoint(job.id)
    if cli.out.as_json:
        cli.out.json(requested.as_json())
    else:
        cli.out.say(
            f"{job.display_name} was asked to save a checkpoint. Once stored: crucible checkpoints {job.display_name}"
        )


def _download(cli: CommandContext, api: Api, job: JobView, ref: str, into: Path, force: bool) -> None:
    checkpoint = api.checkpoint(job.id, ref)
    if not force:
        refuse_to_overwrite([as_file(checkpoint)], into, folder="--output")
    path = download_checkpoint(api, job.id, checkpoint, into)
    if cli.out.as_json:
        cli.out.json({**checkpoint.as_json(), "file": str(path)})
        return
    cli.out.data(str(path))
    unpack = f"; to unpack this folder: tar -xf {path}" if checkpoint.form == "folder" else ""
    cli.out.say(f"{checkpoint.display_name}, {format_memory(checkpoint.size)}, checked{unpack}")


def _list_format(job: JobView) -> ListFormat[CheckpointView]:
    return ListFormat(
        ("CHECKPOINT", "STEP", "METRIC", "SIZE", "ATTEMPT", "AGE", "KEPT", "NAME"),
        _row,
        lambda item: item.id,
        f"{job.display_name} has no checkpoints. Complete files in $CRUCIBLE_CHECKPOINT_DIR become checkpoints.",
    )


def _row(item: CheckpointView) -> tuple[str, ...]:
    marks = [name for name, there in (("latest", item.latest), ("best", item.best)) if there]
    return (
        item.display_name,
        "" if item.step is None else str(item.step),
        "" if item.metric is None else f"{item.metric:.4g}",
        format_memory(item.size),
        "" if item.attempt is None else str(item.attempt),
        format_ago(item.stored_at),
        ", ".join([*marks, *_retention(item, marks)]),
        item.file_name,
    )


def _retention(item: CheckpointView, marks: Sequence[str]) -> list[str]:
    """Return why it is kept or was removed, without repeating a mark."""
    if not item.kept:
        return [f"removed: {item.why}" if item.why else "removed"]
    return [item.why] if item.why and item.why not in marks else []


def download(
    ctx: typer.Context,
    job: Job,
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH…]", help="Artifacts, folders or patterns (default: all)."),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Output folder (default: named after the job).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")] = False,
) -> None:
    """Download a job's artifacts. An interrupted download continues where it stopped; each file is verified.

    An existing file that differs is overwritten only with --force.
    """
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        view = find_job(api, job)
        into = (to or Path(view.display_name)).absolute()
        chosen = select_artifacts(api.artifacts(view.id), paths or ())
        if not chosen:
            cli.out.say(f"{view.display_name} has no artifacts: its program wrote no files that are kept.")
        if not force:
            refuse_to_overwrite(chosen, into)
        already_present = [item for item in chosen if local_file(item, into) is LocalFile.INTACT]
        for artifact in chosen:
            path = fetch(api, view.id, artifact, into)
            if cli.out.as_json:
                cli.out.json({**artifact.as_json(), "file": str(path)})
            else:
                cli.out.data(str(path))
        if chosen:
            cli.out.say(_summary(chosen, already_present, into))


def _summary(chosen: tuple[ArtifactView, ...], already_present: list[ArtifactView], into: Path) -> str:
    size = format_memory(sum(item.size for item in chosen))
    already = (
        ""
        if not already_present
        else f"; {'all' if len(already_present) == len(chosen) else len(already_present)} already there"
    )
    return f"{len(chosen)} file{'s' if len(chosen) > 1 else ''}, {size}, in {into}{already}"
