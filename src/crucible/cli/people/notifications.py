"""`crucible notifications`: a project's webhooks for job events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.options.common_options import Project, Yes, resolve_project
from crucible.cli.output.format import format_ago
from crucible.cli.output.output import ListFormat
from crucible.core.errors import BadInput, UnknownName
from crucible.core.hooks import ENDS, HookEvent, HookFormat
from crucible.core.ids import short
from crucible.core.views.hooks import DeliveryView, HookView

if TYPE_CHECKING:
    from crucible.client.api.people import Hooks

Ref = Annotated[str, typer.Argument(metavar="HOOK", help="Webhook ID, or the end of it.")]
Events = Annotated[
    list[str] | None,
    typer.Option(
        "--event", metavar="EVENT", help=f"Events: {', '.join(HookEvent)}. Repeatable, or separated by commas."
    ),
]


def notifications(ctx: typer.Context, project: Project = None) -> None:
    """List a project's webhooks, their events and state."""
    with _hooks(ctx, project) as (cli, hooks, where):
        views = hooks.list_hooks(where)
    none = f"The project {where} has no webhooks. Add one: crucible notifications add URL"
    heads = ("HOOK", "URL", "EVENTS", "STATE", "LAST")
    cli.out.print_list(views, ListFormat(heads, _row, lambda hook: hook.id, none), project=where)


def add(
    ctx: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="URL that receives the messages.")],
    event: Events = None,
    format: Annotated[str, typer.Option("--format", help="Message format: json or slack (default: json).")] = "json",
    project: Project = None,
) -> None:
    """Add a webhook for a project's job events. Its signing secret is printed once.

    Default events: the ends of jobs.
    """
    events = _events(event) or ENDS
    if format not in set(HookFormat):
        raise UnknownName("format", format, [item.value for item in HookFormat])
    with _hooks(ctx, project) as (cli, hooks, where):
        made = hooks.add(where, url, events=events, format=format)
    _print_secret(cli, made, f"Test it: crucible notifications test {short(made.id)} --project {made.project}")


def show(ctx: typer.Context, hook: Ref, project: Project = None) -> None:
    """Show a webhook: its events, its state, and why it is disabled, if it is."""
    with _hooks(ctx, project) as (cli, hooks, where):
        view = hooks.get(where, hook)
    _show(cli, view)


def change(
    ctx: typer.Context,
    hook: Ref,
    event: Events = None,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="New URL.")] = None,
    project: Project = None,
) -> None:
    """Change a webhook's URL or events."""
    events = _events(event) or None
    if events is None and url is None:
        raise BadInput("There is nothing to change.", fix="Give --event, --url, or both.")
    with _hooks(ctx, project) as (cli, hooks, where):
        changed = hooks.change(where, hook, url=url, events=events)
    _show(cli, changed)


def try_it(ctx: typer.Context, hook: Ref, project: Project = None) -> int:
    """Send a test message now, even if the webhook is disabled, and show the response."""
    with _hooks(ctx, project) as (cli, hooks, where):
        tried = hooks.test(where, hook)
    if cli.out.as_json:
        cli.out.json(tried.as_json())
    cli.out.say(f"{_outcome(tried)} after {tried.seconds:.2f} s. {tried.answer or ''}".strip())
    return 0 if tried.delivered else 1


def enable(ctx: typer.Context, hook: Ref, project: Project = None) -> None:
    """Enable a webhook; one that waits after failures is retried at once."""
    _switch(ctx, hook, project, on=True)


def disable(ctx: typer.Context, hook: Ref, project: Project = None) -> None:
    """Disable a webhook until it is enabled again."""
    _switch(ctx, hook, project, on=False)


def rotate(ctx: typer.Context, hook: Ref, project: Project = None) -> None:
    """Create a new signing secret. For a day messages are signed with the old one too."""
    with _hooks(ctx, project) as (cli, hooks, where):
        made = hooks.rotate(where, hook)
    _print_secret(cli, made, "For a day messages are signed with the old secret too.")


def deliveries(
    ctx: typer.Context,
    hook: Ref,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=100, help="Maximum number of deliveries (default: 20).")
    ] = 20,
    project: Project = None,
) -> None:
    """List a webhook's recent deliveries, newest first."""
    with _hooks(ctx, project) as (cli, hooks, where):
        views = hooks.deliveries(where, hook, limit=limit)
    heads = ("AT", "TYPE", "JOB", "OUTCOME", "SECONDS", "ANSWER")
    listing = ListFormat(heads, _delivery_row, lambda tried: tried.id, "Nothing has been sent yet.")
    cli.out.print_list(views, listing, project=where)


def remove(ctx: typer.Context, hook: Ref, project: Project = None, yes: Yes = False) -> int:
    """Remove a webhook and its secret."""
    with _hooks(ctx, project) as (cli, hooks, where):
        view = hooks.get(where, hook)
        if not cli.confirm(f"Remove {short(view.id)} ({view.url})?", yes=yes):
            return 1
        hooks.remove(where, view.id)
    if cli.out.as_json:
        cli.out.json({"project": where, "id": view.id, "removed": True})
    cli.out.say(f"{short(view.id)} is removed.")
    return 0


@contextmanager
def _hooks(ctx: typer.Context, project: str | None) -> Iterator[tuple[CommandContext, Hooks, str]]:
    """Connect, and return the hooks API and the project."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        yield cli, api.hooks, resolve_project(cli, api, project)


def _switch(ctx: typer.Context, hook: str, project: str | None, *, on: bool) -> None:
    with _hooks(ctx, project) as (cli, hooks, where):
        changed = hooks.change(where, hook, enabled=on)
    if cli.out.as_json:
        cli.out.json(changed.as_json())
    cli.out.say(f"{short(changed.id)} is {'enabled for events from now on' if on else 'disabled'}.")


def _events(items: list[str] | None) -> tuple[HookEvent, ...]:
    words = [word.strip() for item in items or () for word in item.split(",") if word.strip()]
    for word in words:
        if word not in set(HookEvent):
            raise UnknownName("event", word, [item.value for item in HookEvent])
    return tuple(dict.fromkeys(map(HookEvent, words)))


def _print_secret(cli: CommandContext, made: HookView, words: str) -> None:
    if cli.out.as_json:
        cli.out.json(made.as_json())
        return
    cli.out.data(str(made.secret))
    cli.out.say(
        f"This is the signing secret of {short(made.id)}; it is not shown again. Receivers verify messages with it "
        f"(docs/notifications.md). {words}"
    )


def _show(cli: CommandContext, hook: HookView) -> None:
    if cli.out.as_json:
        cli.out.json(hook.as_json())
        return
    if cli.out.quiet:
        cli.out.data(hook.id)
        return
    failing = f"{hook.failures} in a row, since {format_ago(hook.failing_since)}" if hook.failures else None
    cli.out.fields(
        (
            ("Hook", hook.id),
            ("Project", hook.project),
            ("URL", hook.url),
            ("Events", ", ".join(hook.events)),
            ("Format", hook.format),
            ("State", hook.state),
            ("Why", hook.disabled_why),
            ("Failures", failing),
            ("Given up", f"{hook.given_up} messages" if hook.given_up else None),
            ("Next attempt", hook.next_try_at),
            ("Last", _last(hook) or "never"),
            ("Answer", hook.last.answer if hook.last else None),
            ("Made", f"{format_ago(hook.created_at)} by {hook.made_by}"),
            ("Rotated", format_ago(hook.rotated_at)),
        )
    )


def _row(hook: HookView) -> tuple[str, ...]:
    return short(hook.id), hook.url, ", ".join(hook.events), hook.state, _last(hook)


def _last(hook: HookView) -> str:
    return f"{_outcome(hook.last)} {format_ago(hook.last.at)}" if hook.last else ""


def _outcome(tried: DeliveryView) -> str:
    answered = f" ({tried.status})" if tried.status is not None else ""
    return f"{tried.outcome.replace('_', ' ')}{answered}"


def _delivery_row(tried: DeliveryView) -> tuple[str, ...]:
    job = short(tried.job) if tried.job else ""
    return tried.at or "", tried.type, job, _outcome(tried), f"{tried.seconds:.2f}", tried.answer or ""
