"""`crucible users` and `crucible audit`: users and the audit log."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.options.common_options import Yes
from crucible.cli.output.format import format_ago
from crucible.cli.output.output import ListFormat
from crucible.core.errors import BadInput
from crucible.core.views.people import UserView

Name = Annotated[str, typer.Argument(metavar="USER", help="User name.")]
Email = Annotated[str | None, typer.Option("--email", help="E-mail address, to sign in with the OpenID provider.")]
PasswordStdin = Annotated[bool, typer.Option("--password-stdin", help="Read the password from standard input.")]


def users(ctx: typer.Context) -> None:
    """List users."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        views = api.people.users()
    nobody = "There are no users: the owner of the state folder is the only one. Add one: crucible users add NAME"
    heads = ("USER", "WHAT", "LOGS IN BY", "PROJECTS", "SINCE")
    cli.out.print_list(views, ListFormat(heads, _row, lambda user: user.name, nobody))


def add(
    ctx: typer.Context,
    name: Name,
    admin: Annotated[bool, typer.Option("--admin", help="Make the user an administrator.")] = False,
    password_stdin: PasswordStdin = False,
    email: Email = None,
) -> None:
    """Add a user. Without a password or an address they use tokens: crucible tokens create NAME --user USER."""
    cli = CommandContext.from_typer(ctx)
    password = _read_password() if password_stdin else None
    with cli.api() as api:
        made = api.people.add_user(name, admin=admin, password=password, email=email)
    _print_user(cli, made, f"Added user {name}. Add them to a project: crucible projects grant PROJECT {name} member")


def password(ctx: typer.Context, name: Name, password_stdin: PasswordStdin = False) -> None:
    """Set a user's password and revoke their sessions and tokens. Changing your own needs the old password.

    With --password-stdin the old password, if needed, is the first line, the new one the next.
    """
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        own = api.people.me().user == name
        old = None if not own else _read_password() if password_stdin else _prompt_old_password()
        new = _read_password() if password_stdin else _prompt_new_password()
        changed = api.people.change_user(name, password=new, old_password=old)
    _print_user(cli, changed, f"{name} has a new password.")


def email(
    ctx: typer.Context,
    name: Name,
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="E-mail address; '' removes it.")],
) -> None:
    """Set the e-mail address a user signs in with (OpenID).

    This resets the link: the next person to sign in with that address, verified by the provider, becomes this user.
    """
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        _print_user(
            cli,
            api.people.change_user(name, email=address),
            f"{name} signs in as {address}." if address else f"{name} has no e-mail address.",
        )


def tie(
    ctx: typer.Context,
    name: Name,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="The provider's ID of the person (`sub`).")],
) -> None:
    """Link a user to an OpenID subject, for a provider that does not verify e-mail addresses.

    `crucible audit --json` shows the subject of every sign-in that was rejected.
    """
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        _print_user(cli, api.people.change_user(name, subject=subject), f"{name} is linked to {subject}.")


def disable(ctx: typer.Context, name: Name, yes: Yes = False) -> int:
    """Disable a user and revoke their tokens and sessions. Their jobs continue. Asks unless --yes."""
    cli = CommandContext.from_typer(ctx)
    why = "Their tokens and sessions are revoked at once, and stay revoked if the user is enabled again."
    if not cli.confirm(f"Disable {name}?", yes=yes, why=why):
        return 1
    with cli.api() as api:
        _print_user(cli, api.people.change_user(name, disabled=True), f"{name} is disabled; their tokens are revoked.")
    return 0


def enable(ctx: typer.Context, name: Name) -> None:
    """Enable a disabled user. They need new tokens."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        _print_user(cli, api.people.change_user(name, disabled=False), f"{name} is enabled.")


def audit(
    ctx: typer.Context,
    project: Annotated[str | None, typer.Option("--project", help="Only this project.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=500, help="Maximum number of entries (default: 50).")
    ] = 50,
) -> None:
    """List the audit log: what was done, and by whom, newest first."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        page = api.people.audit(project=project, limit=limit)
    if cli.out.as_json:
        cli.out.json(page.as_json())
        return
    rows = [(format_ago(d.at), d.user, d.via, d.action, d.target, d.project or "") for d in page.items]
    cli.out.table(("WHEN", "WHO", "BY", "DID", "TO", "PROJECT"), rows)


def _row(user: UserView) -> tuple[str, ...]:
    what = "disabled" if user.disabled else "administrator" if user.admin else "user"
    projects = ", ".join(f"{name} ({role})" for name, role in sorted(user.projects.items()))
    ways = (("password", user.password), (f"provider ({user.email or 'linked'})", user.email or user.tied))
    by = ", ".join(way for way, there in ways if there) or "token"
    return user.name, what, by, projects, format_ago(user.created_at)


def _print_user(cli: CommandContext, user: UserView, words: str) -> None:
    if cli.out.as_json:
        cli.out.json(user.as_json())
    cli.out.say(words)


def _read_password() -> str:
    password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise BadInput("Standard input has no password.", fix="Give it as one line: ... --password-stdin < file")
    return password


def _prompt_old_password() -> str:
    _require_terminal()
    return str(typer.prompt("Old password", hide_input=True, err=True))


def _require_terminal() -> None:
    if not sys.stdin.isatty():
        raise BadInput("There is no terminal to enter a password on.", fix="Add --password-stdin.")


def _prompt_new_password() -> str:
    _require_terminal()
    return str(typer.prompt("New password", hide_input=True, confirmation_prompt=True, err=True))
