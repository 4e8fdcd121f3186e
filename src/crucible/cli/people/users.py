"""`crucible users` and `crucible audit`: who may come in, and what was done."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from crucible.cli.options.arguments import Yes
from crucible.cli.output.format import ago_words
from crucible.cli.output.output import Listing
from crucible.cli.session import Session
from crucible.core.errors import BadInput
from crucible.core.views.people import UserView

Name = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
Email = Annotated[str | None, typer.Option("--email", help="His e-mail address: he signs in with the OpenID provider.")]
PasswordStdin = Annotated[bool, typer.Option("--password-stdin", help="Read the password from standard input.")]


def users(ctx: typer.Context) -> None:
    """List users."""
    session = Session.of(ctx)
    with session.api() as api:
        found = api.people.users()
    nobody = "There are no users: whoever holds the state folder is the owner. `crucible users add NAME`."
    heads = ("USER", "WHAT", "LOGS IN BY", "PROJECTS", "SINCE")
    session.out.listing(found, Listing(heads, _row, lambda user: user.name, nobody))


def add(
    ctx: typer.Context,
    name: Name,
    admin: Annotated[bool, typer.Option("--admin", help="May do everything, everywhere.")] = False,
    password_stdin: PasswordStdin = False,
    email: Email = None,
) -> None:
    """Add a user. Without a password or an address he uses tokens: crucible tokens create NAME --user USER."""
    session = Session.of(ctx)
    password = _password() if password_stdin else None
    with session.api() as api:
        made = api.people.add_user(name, admin=admin, password=password, email=email)
    _told(session, made, f"{name} is a user. Let him into a project: crucible projects grant PROJECT {name} member")


def password(ctx: typer.Context, name: Name, password_stdin: PasswordStdin = False) -> None:
    """Set a user's password, which ends his sessions and tokens. Your own needs the old one.

    With --password-stdin that is the first line, and the new one the second.
    """
    session = Session.of(ctx)
    with session.api() as api:
        own = api.people.me().user == name
        old = None if not own else _password() if password_stdin else _asked_old()
        given = _password() if password_stdin else _asked()
        changed = api.people.change_user(name, password=given, old_password=old)
    _told(session, changed, f"{name} has a new password.")


def email(
    ctx: typer.Context,
    name: Name,
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="His e-mail address; '' takes it away.")],
) -> None:
    """Set the e-mail address by which a user signs in with the OpenID provider.

    It ties him anew: the next who signs in with that address, confirmed by the provider, is this user.
    """
    session = Session.of(ctx)
    with session.api() as api:
        _told(session, api.people.change_user(name, email=address), f"{name} signs in as {address or 'nobody'}.")


def tie(
    ctx: typer.Context,
    name: Name,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="The provider's name for him (`sub`).")],
) -> None:
    """Tie a user to a person of the OpenID provider, for one that does not confirm e-mail addresses.

    `crucible audit --json` shows the subject of everybody who was refused.
    """
    session = Session.of(ctx)
    with session.api() as api:
        _told(session, api.people.change_user(name, subject=subject), f"{name} is tied to that person.")


def disable(ctx: typer.Context, name: Name, yes: Yes = False) -> int:
    """Keep a user out, and end all his tokens and sessions. His jobs go on. Asks unless --yes."""
    session = Session.of(ctx)
    why = "All his tokens and sessions end at once, and do not come back with him."
    if not session.confirm(f"Keep {name} out?", yes=yes, why=why):
        return 1
    with session.api() as api:
        _told(session, api.people.change_user(name, disabled=True), f"{name} is kept out; his tokens have ended.")
    return 0


def enable(ctx: typer.Context, name: Name) -> None:
    """Let a user in again; he needs new tokens."""
    session = Session.of(ctx)
    with session.api() as api:
        _told(session, api.people.change_user(name, disabled=False), f"{name} may come in again.")


def audit(
    ctx: typer.Context,
    project: Annotated[str | None, typer.Option("--project", help="Of one project.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="How many.")] = 50,
) -> None:
    """List what was done, and by whom, newest first."""
    session = Session.of(ctx)
    with session.api() as api:
        page = api.people.audit(project=project, limit=limit)
    if session.out.as_json:
        session.out.json(page.as_json())
        return
    rows = [(ago_words(d.at), d.user, d.via, d.action, d.target, d.project or "") for d in page.items]
    session.out.table(("WHEN", "WHO", "BY", "DID", "TO", "PROJECT"), rows)


def _row(user: UserView) -> tuple[str, ...]:
    what = "kept out" if user.disabled else "administrator" if user.admin else "user"
    projects = ", ".join(f"{name} ({role})" for name, role in sorted(user.projects.items()))
    ways = (("password", user.password), (f"provider ({user.email or 'tied'})", user.email or user.tied))
    by = ", ".join(way for way, there in ways if there) or "token"
    return user.name, what, by, projects, ago_words(user.created_at)


def _told(session: Session, user: UserView, words: str) -> None:
    if session.out.as_json:
        session.out.json(user.as_json())
    session.out.say(words)


def _password() -> str:
    given = sys.stdin.readline().rstrip("\n")
    if not given:
        raise BadInput("Standard input holds no password.", fix="Give it as one line: ... --password-stdin < file")
    return given


def _asked_old() -> str:
    _need_terminal()
    return str(typer.prompt("Old password", hide_input=True, err=True))


def _need_terminal() -> None:
    if not sys.stdin.isatty():
        raise BadInput("Nobody can be asked here: this is no terminal.", fix="Add --password-stdin.")


def _asked() -> str:
    _need_terminal()
    return str(typer.prompt("New password", hide_input=True, confirmation_prompt=True, err=True))
