"""`crucible tag`, `note` and `rename`: what people call jobs, and say about them."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible.cli.options.arguments import Job
from crucible.cli.output.output import Listing
from crucible.cli.session import Session
from crucible.client.sdk.job_lookup import find_job
from crucible.core.errors import BadInput
from crucible.core.job.tags import parse_tags
from crucible.core.views.jobs import JobView, NoteView


def tag(
    ctx: typer.Context,
    job: Job,
    tags: Annotated[list[str] | None, typer.Argument(metavar="[TAG…]", help="To add: key or key=value.")] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", "-r", metavar="TAG", help="To take away. Repeatable.")
    ] = None,
) -> None:
    """Add tags to a job, take some away, and list what it has.

    A tag takes the place of one with its key.
    """
    session = Session.of(ctx)
    parse_tags(tags or ()), parse_tags(remove or ())
    with session.api() as api:
        found = find_job(api, job)
        changed = (
            api.labels.tag(found.id, add=tags or (), remove=remove or ())
            if tags or remove
            else api.labels.tags(found.id)
        )
        if session.out.as_json:
            session.out.json({"job": found.id, "tags": list(changed)})
            return
        for text in changed:
            session.out.data(text)
        if not changed:
            session.out.say(f"{found.display_name} has no tags.")


def note(
    ctx: typer.Context,
    job: Job,
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="To leave; without it notes are listed.")] = None,
    delete: Annotated[
        str | None, typer.Option("--delete", metavar="NOTE", help="Delete this one, by its id or an ending of it.")
    ] = None,
) -> None:
    """Leave a note on a job, delete one, or list them."""
    session = Session.of(ctx)
    if text is not None and delete is not None:
        raise BadInput("A note is left or deleted, not both.", fix="Leave out the text, or --delete.")
    with session.api() as api:
        found = find_job(api, job)
        if delete is not None:
            _told(session, api.labels.delete_note(found.id, delete), "Deleted {0.called}: {0.text}")
        elif text is not None:
            _told(session, api.labels.add_note(found.id, text), f"Noted on {found.display_name} as {{0.called}}.")
        else:
            session.out.listing(api.labels.notes(found.id), _notes_of(found))


def _told(session: Session, done: NoteView, words: str) -> None:
    if session.out.as_json:
        session.out.json(done.as_json())
    elif session.out.quiet:
        session.out.data(done.id)
    else:
        session.out.say(words.format(done))


def _notes_of(job: JobView) -> Listing[NoteView]:
    return Listing(
        ("NOTE", "WHEN", "BY", "TEXT"),
        lambda note: (note.display_name, note.at or "", note.author, note.text),
        lambda note: note.id,
        f"{job.display_name} has no notes.",
    )


def rename(
    ctx: typer.Context,
    job: Job,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Without it the name is taken away.")] = None,
) -> None:
    """Give a job another name; whatever it is doing goes on."""
    session = Session.of(ctx)
    with session.api() as api:
        found = api.labels.rename(find_job(api, job).id, name)
        if session.out.as_json:
            session.out.json(found.as_json())
        else:
            session.out.say(
                f"{found.display_name} is called {found.name!r}."
                if found.name
                else f"{found.display_name} has no name."
            )
