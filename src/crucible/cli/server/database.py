"""`crucible db`: copies of the database, and what to do after one was put in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crucible.cli.options.arguments import Yes
from crucible.cli.server.embedded import refuse_named
from crucible.cli.session import Session
from crucible.core.compute.resources import format_memory
from crucible.core.errors import BadInput, Conflict

CONFIRM = "crucible db confirm"


def backup(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file, on the server's disk.")],
) -> None:
    """Copy the database to a file, as it is at one moment; jobs go on meanwhile."""
    session = Session.of(ctx)
    target = _on_the_server(session, file)
    with session.api() as api:
        made = api.maintenance.backup(target)
    if session.out.as_json:
        session.out.json(made.as_json())
    else:
        session.out.data(made.path)
        session.out.say(f"{format_memory(made.bytes)}, sha256 {made.sha256}. Back: crucible db restore {made.path}")


def restore(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `crucible db backup` wrote.")],
    force: Annotated[bool, typer.Option("--force", help="Also of another deployment's database: its history.")] = False,
    in_use: Annotated[
        bool, typer.Option("--in-use", help="PostgreSQL: also while a process seems to work on the database.")
    ] = False,
    yes: Yes = False,
) -> int:
    """Put a copy in the place of the embedded server's database. The server has to be down; asks unless --yes.

    Afterwards nothing from before is ended until `crucible db confirm`, and jobs wait until all that runs is known:
    what the copy does not know may be in use.
    """
    from crucible.client.server import restore as restoring

    session = Session.of(ctx)
    refuse_named(session)
    source = session.folder / file.expanduser()
    if not source.is_file():
        raise BadInput(f"{file} is no file.", why=f"It was looked for at {source}.", fix="Name what a backup wrote.")
    _refuse_while_up(session)
    home = session.settings.home.value
    lost = f"What happened since {file} was written is forgotten in {home}."
    if not session.confirm(f"Restore {home} from {file}?", yes=yes, why=lost):
        return 1
    told = restoring.restore(source, home, session.environ, force=force, in_use=in_use)
    if session.out.as_json:
        session.out.json({"file": str(source), "home": str(home), **told})
    else:
        session.out.say(f"Restored {home} from {file}.")
        if told.get("kept"):
            session.out.say(f"What was there before is kept as {told['kept']}.")
        session.out.say(f"Nothing from before is ended until you have looked at what runs and said: {CONFIRM}")
        session.out.say("What runs: crucible machines, crucible machines orphans")
    return 0


def confirm(ctx: typer.Context, yes: Yes = False) -> int:
    """After a restore: allow machines to be launched and ended again. Asks unless --yes."""
    session = Session.of(ctx)
    with session.api() as api:
        why = "Machines that the restored database does not want will be ended."
        if not session.confirm("Allow machines to be launched and ended again?", yes=yes, why=why):
            return 1
        done = api.maintenance.confirm_restore()
    if session.out.as_json:
        session.out.json(done.as_json())
    else:
        session.out.say(_confirmed(done.as_json().get("restored_at")))
    return 0


def _confirmed(restored_at: object) -> str:
    if restored_at is None:
        return "There was nothing to confirm: the database was not restored, or that was confirmed before."
    return "Machines may be launched and ended again."


def _on_the_server(session: Session, file: Path) -> str:
    """The path as the server knows it: the embedded one shares this computer's disk, a named one may not."""
    if session.settings.server.value is not None and not file.is_absolute():
        raise BadInput(
            f"{file} is relative, but the copy is written on the server's disk.",
            why=f"The server is {session.settings.server.value}.",
            fix="Name an absolute path there.",
        )
    return str(session.folder / file.expanduser())


def _refuse_while_up(session: Session) -> None:
    if session.embedded.find_running() is not None:
        raise Conflict(
            "The server is up, and its database cannot be replaced under it.",
            fix="Stop it first with `crucible down`; jobs go on.",
        )
