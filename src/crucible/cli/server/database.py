"""`crucible db`: back up and restore the database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.options.common_options import Yes
from crucible.cli.server.embedded import require_embedded
from crucible.core.compute.resources import format_memory
from crucible.core.errors import BadInput, Conflict

CONFIRM = "crucible db confirm"


def backup(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="New file, on the server's disk.")],
) -> None:
    """Back up the database to a file, as one consistent snapshot, while jobs run."""
    cli = CommandContext.from_typer(ctx)
    target = _server_path(cli, file)
    with cli.api() as api:
        made = api.maintenance.backup(target)
    if cli.out.as_json:
        cli.out.json(made.as_json())
    else:
        cli.out.data(made.path)
        cli.out.say(f"{format_memory(made.bytes)}, sha256 {made.sha256}. To restore: crucible db restore {made.path}")


def restore(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File written by `crucible db backup`.")],
    force: Annotated[
        bool, typer.Option("--force", help="Also restore another deployment's database, for its history.")
    ] = False,
    in_use: Annotated[
        bool, typer.Option("--in-use", help="PostgreSQL: restore even if the database seems to be in use.")
    ] = False,
    yes: Yes = False,
) -> int:
    """Restore the embedded server's database from a backup. The server must be stopped; asks unless --yes.

    Until `crucible db confirm` no earlier machine is terminated and jobs wait: machines the backup does not know
    may be in use.
    """
    from crucible.client.server import restore as embedded_restore

    cli = CommandContext.from_typer(ctx)
    require_embedded(cli)
    source = cli.folder / file.expanduser()
    if not source.is_file():
        raise BadInput(
            f"{file} is not a file.",
            why=f"It was looked for at {source}.",
            fix="Name a file written by `crucible db backup`.",
        )
    _require_stopped(cli)
    home = cli.settings.home.value
    lost = f"Everything recorded in {home} since {file} was written will be lost."
    if not cli.confirm(f"Restore {home} from {file}?", yes=yes, why=lost):
        return 1
    restored = embedded_restore.restore(source, home, cli.environ, force=force, in_use=in_use)
    if cli.out.as_json:
        cli.out.json({"file": str(source), "home": str(home), **restored})
    else:
        cli.out.say(f"Restored {home} from {file}.")
        if restored.get("kept"):
            cli.out.say(f"The previous database is kept as {restored['kept']}.")
        cli.out.say(f"No earlier machine is terminated until you have checked what runs and confirmed: {CONFIRM}")
        cli.out.say("To check: crucible machines, crucible machines orphans")
    return 0


def confirm(ctx: typer.Context, yes: Yes = False) -> int:
    """After a restore, allow machines to be launched and terminated again. Asks unless --yes."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        why = "Machines that the restored database does not need will be terminated."
        if not cli.confirm("Allow machines to be launched and terminated again?", yes=yes, why=why):
            return 1
        done = api.maintenance.confirm_restore()
    if cli.out.as_json:
        cli.out.json(done.as_json())
    else:
        cli.out.say(_format_confirmation(done.as_json().get("restored_at")))
    return 0


def _format_confirmation(restored_at: object) -> str:
    if restored_at is None:
        return "Nothing to confirm: the database was not restored, or the restore is already confirmed."
    return "Machines may be launched and terminated again."


def _server_path(cli: CommandContext, file: Path) -> str:
    """Return the path on the server: the embedded one shares this computer's disk, a named one may not."""
    if cli.settings.server.value is not None and not file.is_absolute():
        raise BadInput(
            f"{file} is a relative path, but the backup is written on the server's disk.",
            why=f"The server is {cli.settings.server.value}.",
            fix="Give an absolute path on the server.",
        )
    return str(cli.folder / file.expanduser())


def _require_stopped(cli: CommandContext) -> None:
    if cli.embedded_server.find_running() is not None:
        raise Conflict(
            "The server is running; its database cannot be replaced.",
            fix="Stop it first with `crucible down`; jobs continue.",
        )
