"""`crucible tag`, `note` and `rename`: tags, notes and names of jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.options.common_options import Job
from crucible.cli.output.output import ListFormat
from crucible.client.sdk.job_lookup import find_job
from crucible.core.errors import BadInput
from crucible.core.job.tags import parse_tags
from crucible.core.views.jobs import JobView, NoteView


def tag(
    ctx: typer.Context,
    job: Job,
    tags: Annotated[list[str] | None, typer.Argument(metavar="[TAG…]", help="Tags to add: KEY or KEY=VALUE.")] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", "-r", metavar="TAG", help="Remove this tag. Repeatable.")
    ] = None,
) -> None:
    """Add, remove or list a job's tags. A new tag replaces one with the same key."""
    cli = CommandContext.from_typer(ctx)
    parse_tags(tags or ()), parse_tags(remove or ())
    with cli.api() as api:
        view = find_job(api, job)
        changed = (
            api.labels.change_tags(view.id, add=tags or (), remove=remove or ())
            if tags or remove
            else api.labels.tags(view.id)
        )
        if cli.out.as_json:
            cli.out.json({"job": view.id, "tags": list(changed)})
            return
        for text in changed:
            cli.out.data(text)
        if not changed:
            cli.out.say(f"{view.display_name} has no tags.")


def note(
    ctx: typer.Context,
    job: Job,
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="Text of a new note (default: list the notes).")
    ] = None,
    delete: Annotated[
        str | None, typer.Option("--delete", metavar="NOTE", help="Delete this note, by its ID or the end of it.")
    ] = None,
) -> None:
    """Add, delete or list a job's notes."""
    cli = CommandContext.from_typer(ctx)
    if text is not None and delete is not None:
        raise BadInput("TEXT and --delete exclude each other.", fix="Leave out the text or --delete.")
    with cli.api() as api:
        view = find_job(api, job)
        if delete is not None:
            _print_note(cli, api.labels.delete_note(view.id, delete), "Deleted {0.display_name}: {0.text}")
        elif text is not None:
            _print_note(
                cli, api.labels.add_note(view.id, text), f"Added note {{0.display_name}} to {view.display_name}."
            )
        else:
            cli.out.print_list(api.labels.notes(view.id), _list_format(view))


def _print_note(cli: CommandContext, done: NoteView, template: str) -> None:
    if cli.out.as_json:
        cli.out.json(done.as_json())
    elif cli.out.quiet:
        cli.out.data(done.id)
    else:
        cli.out.say(template.format(done))


def _list_format(job: JobView) -> ListFormat[NoteView]:
    return ListFormat(
        ("NOTE", "WHEN", "BY", "TEXT"),
        lambda note: (note.display_name, note.at or "", note.author, note.text),
        lambda note: note.id,
        f"{job.display_name} has no notes.",
    )


def rename(
    ctx: typer.Context,
    job: Job,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="New name (default: remove the name).")] = None,
) -> None:
    """Rename a job; a running job is not interrupted."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        view = api.labels.rename(find_job(api, job).id, name)
        if cli.out.as_json:
            cli.out.json(view.as_json())
        else:
            cli.out.say(
                f"{view.display_name} is now named {view.name!r}."
                if view.name
                else f"{view.display_name} has no name now."
            )
