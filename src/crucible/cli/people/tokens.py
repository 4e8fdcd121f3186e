"""`crucible tokens` and `crucible share`: tokens of users, and links that show one job."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.options.common_options import Job, Yes
from crucible.cli.output.format import format_ago
from crucible.cli.output.output import ListFormat
from crucible.client.sdk.job_lookup import find_job
from crucible.core.errors import UnknownName
from crucible.core.people.identity import Permission
from crucible.core.views.people import TokenView


def tokens(
    ctx: typer.Context,
    everyones: Annotated[bool, typer.Option("--all", help="List every user's tokens (administrators only).")] = False,
) -> None:
    """List your tokens, sessions and share links. The tokens themselves are never shown."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        views = api.people.tokens(all=everyones)
    heads = ("TOKEN", "USER", "NAME", "KIND", "MAY", "ONLY IN", "STATE", "USED")
    none = "You have no tokens. Create one: crucible tokens create NAME"
    cli.out.print_list(views, ListFormat(heads, _row, lambda token: token.id, none))


def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.")],
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help=f"Scope: {', '.join(Permission)}. Repeatable (default: read, write)."),
    ] = None,
    days: Annotated[float, typer.Option("--days", min=0, help="Days until it expires; 0: never (default: 90).")] = 90.0,
    project: Annotated[str | None, typer.Option("--project", help="Restrict it to one project.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="Create it for this user (administrators only).")] = None,
) -> None:
    """Create a token for a program. It is printed once and stored nowhere."""
    cli = CommandContext.from_typer(ctx)
    for word in scope or ():
        if word not in set(Permission):
            raise UnknownName("scope", word, [item.value for item in Permission])
    with cli.api() as api:
        made = api.people.make_token(
            name, scopes=scope or ("read", "write"), days=days or None, project=project, user=user
        )
    _print_token(cli, made, "Use it as CRUCIBLE_TOKEN, or with `crucible login URL --token-stdin`.")


def revoke(
    ctx: typer.Context,
    refs: Annotated[list[str], typer.Argument(metavar="ID…", help="Token IDs, or ends of IDs.")],
    yes: Yes = False,
) -> int:
    """Revoke tokens. Asks unless --yes."""
    cli = CommandContext.from_typer(ctx)
    if not cli.confirm(f"Revoke {', '.join(refs)}?", yes=yes, why="Programs that use them lose access at once."):
        return 1
    with cli.api() as api:
        for ref in refs:
            ended = api.people.revoke_token(ref)
            cli.out.json(ended.as_json()) if cli.out.as_json else cli.out.say(f"{ended.id} is revoked.")
    return 0


def share(
    ctx: typer.Context,
    job: Job,
    hours: Annotated[float, typer.Option("--hours", min=0.01, help="Hours until it expires (default: 24).")] = 24.0,
    name: Annotated[str, typer.Option("--name", help="Name of the link (default: share link).")] = "share link",
) -> None:
    """Create a link and a token that show one job, and nothing else, to anyone who has them."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        made = api.people.share(find_job(api, job).id, name=name, hours=hours)
    if made.url is not None and not cli.out.as_json:
        cli.out.say(f"For a browser: {made.url}")
    _print_token(cli, made, f"It shows only {made.job}. Revoke it: crucible tokens revoke {made.id}")


def _print_token(cli: CommandContext, made: TokenView, words: str) -> None:
    if cli.out.as_json:
        cli.out.json(made.as_json())
        return
    cli.out.data(str(made.token))
    until = made.expires_at or "it is revoked"
    cli.out.say(f"Valid until {until}; it is not shown again. {words}")


def _row(token: TokenView) -> tuple[str, ...]:
    only = token.job or token.project or ""
    used = format_ago(token.used_at) if token.used_at else "never"
    return token.id, token.user, token.name, token.via, ", ".join(token.scopes), only, token.state, used
