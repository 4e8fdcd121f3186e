"""`crucible up` and `down`: the embedded server, by hand."""

from __future__ import annotations

from dataclasses import dataclass

import typer

from crucible.cli.options.arguments import Yes
from crucible.cli.session import Session
from crucible.client.sdk.job_lookup import PAGE
from crucible.core.errors import BadInput, CrucibleError
from crucible.core.views.server import ServerView


def up(ctx: typer.Context) -> None:
    """Start the embedded server if it is not up. Commands that need it do so by themselves."""
    session = Session.of(ctx)
    refuse_named(session)
    with session.api() as api:
        about = api.server()
        if session.out.as_json:
            session.out.json({**about.as_json(), "url": api.endpoint.url})
        elif session.out.quiet:
            session.out.data(api.endpoint.url)
        else:
            session.out.data(f"The server is up at {api.endpoint.url} (version {about.version}, {_load(about)})")
            session.out.say(f"Its state is in {session.settings.home.value}")


def down(ctx: typer.Context, yes: Yes = False) -> int:
    """Stop the embedded server. Jobs go on; the next command that needs it starts it again."""
    session = Session.of(ctx)
    refuse_named(session)
    load = _load_of(session)
    if load is not None and load.is_any and not session.confirm("Stop the server?", yes=yes, why=_warning(load)):
        return 1
    stopped = session.embedded.stop()
    if session.out.as_json:
        session.out.json({"stopped": stopped, **(_numbers(load) if load else {})})
    else:
        session.out.say("The server is stopped." if stopped else "No server was up.")
    return 0


@dataclass(frozen=True)
class _Load:
    """What the server has to do; `cancelling` are jobs that were asked to end and have not yet."""

    about: ServerView
    cancelling: tuple[str, ...] = ()

    @property
    def is_any(self) -> bool:
        return bool(self.about.running or self.about.queued or self.about.billing)


def _load_of(session: Session) -> _Load | None:
    """What the server does, or None if it is down or does not say."""
    try:
        with session.api_if_up() as api:
            if api is None:
                return None
            about = api.server()
            active = api.jobs(active=True, limit=PAGE).items if about.running or about.queued else ()
            return _Load(about, tuple(job.display_name for job in active if job.desired == "cancel"))
    except CrucibleError as error:
        session.out.say(f"The server does not say what it does: {error.what}")
        return None


def _warning(load: _Load) -> str:
    about, parts = load.about, []
    if load.cancelling:
        parts.append(
            f"{', '.join(load.cancelling)} still being cancelled: what is left of that waits for the next server"
        )
    if about.running:
        parts.append(f"{about.running} running: they go on, and their news waits for the next server")
    if about.queued:
        parts.append(f"{about.queued} queued: they wait for the next server")
    if about.billing:
        parts.append(f"{about.billing} machine{'s' if about.billing > 1 else ''} billing, and nobody watches them")
    return "Still there: " + "; ".join(parts) + "."


def _load(about: ServerView) -> str:
    return f"{about.running} running, {about.queued} queued"


def _numbers(load: _Load) -> dict[str, object]:
    about = load.about
    numbers = {"running": about.running, "queued": about.queued, "billing": about.billing}
    return {**numbers, "cancelling": list(load.cancelling)}


def refuse_named(session: Session) -> None:
    if session.settings.server.value is not None:
        raise BadInput(
            "This command is about the embedded server, but another one is named.",
            why=f"{session.settings.server.value}, from {session.settings.server.origin}.",
            fix="Unset CRUCIBLE_SERVER, or leave out --server.",
        )
