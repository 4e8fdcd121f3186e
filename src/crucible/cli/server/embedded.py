"""`crucible up` and `down`: start and stop the embedded server."""

from __future__ import annotations

from dataclasses import dataclass

import typer

from crucible.cli.context import CommandContext
from crucible.cli.options.common_options import Yes
from crucible.client.sdk.job_lookup import PAGE
from crucible.core.errors import BadInput, CrucibleError
from crucible.core.views.server import ServerView


def up(ctx: typer.Context) -> None:
    """Start the embedded server. Commands that need it start it automatically."""
    cli = CommandContext.from_typer(ctx)
    require_embedded(cli)
    with cli.api() as api:
        about = api.server()
        if cli.out.as_json:
            cli.out.json({**about.as_json(), "url": api.endpoint.url})
        elif cli.out.quiet:
            cli.out.data(api.endpoint.url)
        else:
            cli.out.data(f"The server is up at {api.endpoint.url} (version {about.version}, {_format_load(about)})")
            cli.out.say(f"Its state is in {cli.settings.home.value}")


def down(ctx: typer.Context, yes: Yes = False) -> int:
    """Stop the embedded server. Running jobs continue; the next command that needs it starts it again."""
    cli = CommandContext.from_typer(ctx)
    require_embedded(cli)
    load = _read_load(cli)
    if load is not None and load.is_any and not cli.confirm("Stop the server?", yes=yes, why=_warning(load)):
        return 1
    stopped = cli.embedded_server.stop()
    if cli.out.as_json:
        cli.out.json({"stopped": stopped, **(_load_as_json(load) if load else {})})
    else:
        cli.out.say("The server is stopped." if stopped else "No server was running.")
    return 0


@dataclass(frozen=True)
class _Load:
    """The server's load; `cancelling` are jobs whose cancellation has not finished."""

    about: ServerView
    cancelling: tuple[str, ...] = ()

    @property
    def is_any(self) -> bool:
        return bool(self.about.running or self.about.queued or self.about.billing)


def _read_load(cli: CommandContext) -> _Load | None:
    """Return the server's load, or None if it is down or does not answer."""
    try:
        with cli.api_if_up() as api:
            if api is None:
                return None
            about = api.server()
            active = api.jobs(active=True, limit=PAGE).items if about.running or about.queued else ()
            return _Load(about, tuple(job.display_name for job in active if job.desired == "cancel"))
    except CrucibleError as error:
        cli.out.say(f"The server's load is unknown: {error.what}")
        return None


def _warning(load: _Load) -> str:
    about, parts = load.about, []
    if load.cancelling:
        parts.append(f"{', '.join(load.cancelling)} still being cancelled; this resumes when the server starts again")
    if about.running:
        parts.append(f"{about.running} running: they continue, and report when the server starts again")
    if about.queued:
        parts.append(f"{about.queued} queued: they wait until the server starts again")
    if about.billing:
        machines = f"{about.billing} machine{'s' if about.billing > 1 else ''}"
        parts.append(f"{machines} billed, and unattended until the server starts again")
    return "The server still has work: " + "; ".join(parts) + "."


def _format_load(about: ServerView) -> str:
    return f"{about.running} running, {about.queued} queued"


def _load_as_json(load: _Load) -> dict[str, object]:
    about = load.about
    numbers = {"running": about.running, "queued": about.queued, "billing": about.billing}
    return {**numbers, "cancelling": list(load.cancelling)}


def require_embedded(cli: CommandContext) -> None:
    if cli.settings.server.value is not None:
        raise BadInput(
            "This command is for the embedded server, but another server is configured.",
            why=f"{cli.settings.server.value}, from {cli.settings.server.origin}.",
            fix="Unset CRUCIBLE_SERVER, or leave out --server.",
        )
