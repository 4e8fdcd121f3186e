"""`crucible secrets`: what jobs may use and nobody may see."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from crucible.cli.options.arguments import Yes
from crucible.cli.options.project import Project, chosen_project
from crucible.cli.output.format import ago_words
from crucible.cli.output.output import Listing
from crucible.cli.session import Session
from crucible.core.errors import BadInput
from crucible.core.people.project_secrets import LONGEST_SECRET, validate_secret_name, validate_secret_value
from crucible.core.views.people import SecretView

Name = Annotated[str, typer.Argument(metavar="NAME", help="The secret's name, such as HF_TOKEN.")]


def secrets(ctx: typer.Context, project: Project = None) -> None:
    """List a project's secrets: names, when and by whom they were set. Values are never shown."""
    session = Session.of(ctx)
    with session.api() as api:
        where = chosen_project(session, api, project)
        found = api.secrets.list_secrets(where)
    none = f"The project {where} has no secrets. `crucible secrets set NAME` sets one."
    session.out.listing(found, Listing(("SECRET", "SET", "BY"), _row, lambda secret: secret.name, none), project=where)


def set_secret(ctx: typer.Context, name: Name, project: Project = None) -> None:
    """Set a secret, or give it a new value. The value is asked for, or read from standard input."""
    session = Session.of(ctx)
    validate_secret_name(name)
    value = validate_secret_value(_value(name))
    with session.api() as api:
        where = chosen_project(session, api, project)
        made = api.secrets.set(where, name, value)
    if session.out.as_json:
        session.out.json({"project": where, **made.as_json()})
    session.out.say(f"{name} is set in {where}. Give it to a job: crucible run --secret {name} ...")


def remove(ctx: typer.Context, name: Name, project: Project = None, yes: Yes = False) -> int:
    """Remove a secret. Jobs that run keep what they were given. Asks unless --yes."""
    session = Session.of(ctx)
    with session.api() as api:
        where = chosen_project(session, api, project)
        why = "Its value cannot be had back, and new jobs that name it are refused."
        if not session.confirm(f"Remove {name} from {where}?", yes=yes, why=why):
            return 1
        api.secrets.remove(where, name)
    if session.out.as_json:
        session.out.json({"project": where, "name": name, "removed": True})
    session.out.say(f"{name} is removed from {where}.")
    return 0


def rotate(ctx: typer.Context) -> None:
    """Encrypt every secret anew with a new key, and drop the old keys."""
    session = Session.of(ctx)
    with session.api() as api:
        done = api.secrets.rotate()
    if session.out.as_json:
        session.out.json(done.as_json())
    session.out.say(
        f"{done.secrets} secret{'' if done.secrets == 1 else 's'} encrypted anew. Back up secrets.keys again, and copy "
        "it to other servers of this deployment that have a copy of their own."
    )


def _value(name: str) -> str:
    """Asked for without showing it, or all of standard input but the end of its last line."""
    if sys.stdin.isatty():
        return str(typer.prompt(f"Value of {name}", hide_input=True, confirmation_prompt=True, err=True))
    given = sys.stdin.buffer.read(LONGEST_SECRET * 2)
    try:
        text = given.decode()
    except UnicodeDecodeError:
        raise BadInput("Standard input holds no text.", fix="Encode it first, for example with base64.") from None
    if not text.strip():
        fix = f"Give it there: crucible secrets set {name} < file; or use a terminal."
        raise BadInput("Standard input holds no value.", fix=fix)
    return text.removesuffix("\n").removesuffix("\r")


def _row(secret: SecretView) -> tuple[str, ...]:
    return secret.name, ago_words(secret.updated_at), secret.updated_by
