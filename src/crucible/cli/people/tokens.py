"""`crucible tokens` and `crucible share`: what stands for a user, and what shows one job."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible.cli.options.arguments import Job, Yes
from crucible.cli.output.format import ago_words
from crucible.cli.output.output import Listing
from crucible.cli.session import Session
from crucible.client.sdk.job_lookup import find_job
from crucible.core.errors import UnknownName
from crucible.core.people.identity import Permission
from crucible.core.views.people import TokenView


def tokens(
    ctx: typer.Context,
    everyones: Annotated[bool, typer.Option("--all", help="Everybody's, for administrators.")] = False,
) -> None:
    """List your tokens, sessions and share links; never the tokens themselves."""
    session = Session.of(ctx)
    with session.api() as api:
        found = api.people.tokens(all=everyones)
    heads = ("TOKEN", "USER", "NAME", "KIND", "MAY", "ONLY IN", "STATE", "USED")
    none = "You have none. `crucible tokens create NAME` makes one."
    session.out.listing(found, Listing(heads, _row, lambda token: token.id, none))


def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for.")],
    scope: Annotated[list[str] | None, typer.Option("--scope", help=f"Of {', '.join(Permission)}; repeat it.")] = None,
    days: Annotated[float, typer.Option("--days", min=0, help="How long it is good; 0: until revoked.")] = 90.0,
    project: Annotated[str | None, typer.Option("--project", help="Hold it to one project.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="For this user; for administrators.")] = None,
) -> None:
    """Make a token for a program. It is printed once, and kept nowhere."""
    session = Session.of(ctx)
    for word in scope or ():
        if word not in set(Permission):
            raise UnknownName("scope", word, [item.value for item in Permission])
    with session.api() as api:
        made = api.people.make_token(
            name, scopes=scope or ("read", "write"), days=days or None, project=project, user=user
        )
    _print(session, made, "Use it as CRUCIBLE_TOKEN, or with `crucible login URL --token-stdin`.")


def revoke(
    ctx: typer.Context,
    refs: Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of tokens, or endings of them.")],
    yes: Yes = False,
) -> int:
    """End tokens at once. Asks unless --yes."""
    session = Session.of(ctx)
    if not session.confirm(f"End {', '.join(refs)}?", yes=yes, why="Whoever uses it is shut out at once."):
        return 1
    with session.api() as api:
        for ref in refs:
            ended = api.people.revoke_token(ref)
            session.out.json(ended.as_json()) if session.out.as_json else session.out.say(f"{ended.id} has ended.")
    return 0


def share(
    ctx: typer.Context,
    job: Job,
    hours: Annotated[float, typer.Option("--hours", min=0.01, help="How long it is good.")] = 24.0,
    name: Annotated[str, typer.Option("--name", help="For whom or what it is.")] = "share link",
) -> None:
    """Make a link and a token that show one job, and nothing else, to whoever has them."""
    session = Session.of(ctx)
    with session.api() as api:
        made = api.people.share(find_job(api, job).id, name=name, hours=hours)
    if made.url is not None and not session.out.as_json:
        session.out.say(f"For a browser: {made.url}")
    _print(session, made, f"It shows {made.job} and nothing else. `crucible tokens revoke {made.id}` ends it.")


def _print(session: Session, made: TokenView, words: str) -> None:
    if session.out.as_json:
        session.out.json(made.as_json())
        return
    session.out.data(str(made.token))
    until = made.expires_at or "it is revoked"
    session.out.say(f"Good until {until}; it is not shown again. {words}")


def _row(token: TokenView) -> tuple[str, ...]:
    only = token.job or token.project or ""
    used = ago_words(token.used_at) if token.used_at else "never"
    return token.id, token.user, token.name, token.via, ", ".join(token.scopes), only, token.state, used
