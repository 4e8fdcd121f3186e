"""`crucible secrets`: a project's secrets."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.options.common_options import Project, Yes, resolve_project
from crucible.cli.output.format import format_ago
from crucible.cli.output.output import ListFormat
from crucible.core.errors import BadInput
from crucible.core.people.project_secrets import LONGEST_SECRET, validate_secret_name, validate_secret_value
from crucible.core.views.people import SecretView

Name = Annotated[str, typer.Argument(metavar="NAME", help="Secret name, such as HF_TOKEN.")]


def secrets(ctx: typer.Context, project: Project = None) -> None:
    """List the names of a project's secrets, and when and by whom they were set. Values are never shown."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        where = resolve_project(cli, api, project)
        views = api.secrets.list_secrets(where)
    none = f"The project {where} has no secrets. Set one: crucible secrets set NAME"
    cli.out.print_list(
        views, ListFormat(("SECRET", "SET", "BY"), _row, lambda secret: secret.name, none), project=where
    )


def set_secret(ctx: typer.Context, name: Name, project: Project = None) -> None:
    """Set a secret or replace its value. The value is prompted for or read from standard input."""
    cli = CommandContext.from_typer(ctx)
    validate_secret_name(name)
    value = validate_secret_value(_read_value(name))
    with cli.api() as api:
        where = resolve_project(cli, api, project)
        made = api.secrets.set(where, name, value)
    if cli.out.as_json:
        cli.out.json({"project": where, **made.as_json()})
    cli.out.say(f"{name} is set in {where}. Use it in a job: crucible run --secret {name} ...")


def remove(ctx: typer.Context, name: Name, project: Project = None, yes: Yes = False) -> int:
    """Remove a secret. Running jobs keep its value. Asks unless --yes."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        where = resolve_project(cli, api, project)
        why = "Its value cannot be recovered, and new jobs that use it are rejected."
        if not cli.confirm(f"Remove {name} from {where}?", yes=yes, why=why):
            return 1
        api.secrets.remove(where, name)
    if cli.out.as_json:
        cli.out.json({"project": where, "name": name, "removed": True})
    cli.out.say(f"{name} is removed from {where}.")
    return 0


def rotate(ctx: typer.Context) -> None:
    """Re-encrypt every secret with a new key and delete the old keys."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        done = api.secrets.rotate()
    if cli.out.as_json:
        cli.out.json(done.as_json())
    cli.out.say(
        f"{done.secrets} secret{'' if done.secrets == 1 else 's'} re-encrypted. Back up secrets.keys again, and copy "
        "it to the other servers of this deployment that keep a copy."
    )


def _read_value(name: str) -> str:
    """Prompt for the value without echo, or read standard input without its last line break."""
    if sys.stdin.isatty():
        return str(typer.prompt(f"Value of {name}", hide_input=True, confirmation_prompt=True, err=True))
    data = sys.stdin.buffer.read(LONGEST_SECRET * 2)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise BadInput("Standard input is not text.", fix="Encode it first, for example with base64.") from None
    if not text.strip():
        fix = f"Redirect a file: crucible secrets set {name} < file; or use a terminal."
        raise BadInput("Standard input is empty.", fix=fix)
    return text.removesuffix("\n").removesuffix("\r")


def _row(secret: SecretView) -> tuple[str, ...]:
    return secret.name, format_ago(secret.updated_at), secret.updated_by
