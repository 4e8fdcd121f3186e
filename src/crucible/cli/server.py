"""`crucible up` and `down`: the embedded server, by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible.cli.session import Session
from crucible.client.views import ServerView
from crucible.core.errors import BadInput, CrucibleError


def up(ctx: typer.Context) -> None:
    """Start the embedded server if it is not up. Commands that need it do so by themselves."""
    session = Session.of(ctx)
    _refuse_named(session)
    with session.api() as api:
        about = api.server()
        if session.out.as_json:
            session.out.json({**about.as_json(), "url": api.endpoint.url})
        elif session.out.quiet:
            session.out.data(api.endpoint.url)
        else:
            session.out.data(
                f"The server is up at {api.endpoint.url} (version {about.version}, {_load(about)})"
            )
            session.out.say(f"Its state is in {session.settings.home.value}")


def down(
    ctx: typer.Context, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
) -> int:
    """Stop the embedded server. Jobs go on; the next command that needs it starts it again."""
    session = Session.of(ctx)
    _refuse_named(session)
    about = _about(session)
    if about is not None and (about.running or about.queued or about.billing):
        session.out.warn(_warning(about))
        if not session.confirm("Stop the server?", yes=yes):
            return 1
    stopped = session.embedded.stop()
    if session.out.as_json:
        session.out.json({"stopped": stopped, **(_numbers(about) if about else {})})
    else:
        session.out.say("The server is stopped." if stopped else "No server was up.")
    return 0


def _about(session: Session) -> ServerView | None:
    """What the server does, or None if it is down or does not say."""
    try:
        with session.api_if_up() as api:
            return api.server() if api is not None else None
    except CrucibleError as error:
        session.out.warn(f"The server does not say what it does: {error.what}")
        return None


def _warning(about: ServerView) -> str:
    parts = []
    if about.running:
        parts.append(f"{about.running} running: they go on, and their news waits for the next server")
    if about.queued:
        parts.append(f"{about.queued} queued: they wait for the next server")
    if about.billing:
        parts.append(
            f"{about.billing} machine{'s' if about.billing > 1 else ''} billing, and nobody watches them"
        )
    return "Still there: " + "; ".join(parts) + "."


def _load(about: ServerView) -> str:
    return f"{about.running} running, {about.queued} queued"


def _numbers(about: ServerView) -> dict[str, object]:
    return {"running": about.running, "queued": about.queued, "billing": about.billing}


def _refuse_named(session: Session) -> None:
    if session.settings.server.value is not None:
        raise BadInput(
            "This command is about the embedded server, but another one is named.",
            why=f"{session.settings.server.value}, from {session.settings.server.origin}.",
            fix="Unset CRUCIBLE_SERVER, or leave out --server.",
        )
