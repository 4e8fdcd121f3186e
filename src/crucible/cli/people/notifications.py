"""`crucible notifications`: addresses that a project tells what becomes of its jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from crucible.cli.options.arguments import Yes
from crucible.cli.options.project import Project, chosen_project
from crucible.cli.output.format import ago_words
from crucible.cli.output.output import Listing
from crucible.cli.session import Session
from crucible.core.errors import BadInput, UnknownName
from crucible.core.hooks import ENDS, HookEvent, HookFormat
from crucible.core.ids import short
from crucible.core.views.hooks import DeliveryView, HookView

if TYPE_CHECKING:
    from crucible.client.api.people import Hooks

Ref = Annotated[str, typer.Argument(metavar="HOOK", help="The hook's id, or an ending of it.")]
Events = Annotated[
    list[str] | None,
    typer.Option("--event", metavar="EVENT", help=f"Of {', '.join(HookEvent)}; repeat it, or put commas between."),
]


def notifications(ctx: typer.Context, project: Project = None) -> None:
    """List a project's hooks: what each is told of, and how it does."""
    with _hooks(ctx, project) as (session, hooks, where):
        found = hooks.list_hooks(where)
    none = f"The project {where} tells nobody. `crucible notifications add URL` adds an address."
    heads = ("HOOK", "URL", "EVENTS", "STATE", "LAST")
    session.out.listing(found, Listing(heads, _row, lambda hook: hook.id, none), project=where)


def add(
    ctx: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="The address that is called.")],
    event: Events = None,
    format: Annotated[str, typer.Option("--format", help="json, or slack for Slack's incoming webhooks.")] = "json",
    project: Project = None,
) -> None:
    """Tell an address what becomes of a project's jobs. The secret that signs the messages is printed once."""
    events = _events(event) or ENDS
    if format not in set(HookFormat):
        raise UnknownName("format", format, [item.value for item in HookFormat])
    with _hooks(ctx, project) as (session, hooks, where):
        made = hooks.add(where, url, events=events, format=format)
    _print_secret(session, made, f"Try it: crucible notifications test {short(made.id)} --project {made.project}")


def show(ctx: typer.Context, hook: Ref, project: Project = None) -> None:
    """Show one hook: what it is told of, how it does, and why it is disabled if it is."""
    with _hooks(ctx, project) as (session, hooks, where):
        found = hooks.get(where, hook)
    _show(session, found)


def change(
    ctx: typer.Context,
    hook: Ref,
    event: Events = None,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="Another address.")] = None,
    project: Project = None,
) -> None:
    """Change a hook's address, or what it is told of."""
    events = _events(event) or None
    if events is None and url is None:
        raise BadInput("Nothing is to be changed.", fix="Give --event, --url, or both.")
    with _hooks(ctx, project) as (session, hooks, where):
        changed = hooks.change(where, hook, url=url, events=events)
    _show(session, changed)


def try_it(ctx: typer.Context, hook: Ref, project: Project = None) -> int:
    """Send a ping now, also to a hook that is disabled, and say what the receiver answered."""
    with _hooks(ctx, project) as (session, hooks, where):
        tried = hooks.test(where, hook)
    if session.out.as_json:
        session.out.json(tried.as_json())
    session.out.say(f"{_outcome(tried)} after {tried.seconds:.2f} s. {tried.answer or ''}".strip())
    return 0 if tried.delivered else 1


def enable(ctx: typer.Context, hook: Ref, project: Project = None) -> None:
    """Tell a hook again, from now on. One that waits after failures is tried at once."""
    _switch(ctx, hook, project, on=True)


def disable(ctx: typer.Context, hook: Ref, project: Project = None) -> None:
    """Tell a hook nothing more, until it is enabled again."""
    _switch(ctx, hook, project, on=False)


def rotate(ctx: typer.Context, hook: Ref, project: Project = None) -> None:
    """Give a hook a new signing secret. For a day messages are signed with the old one too."""
    with _hooks(ctx, project) as (session, hooks, where):
        made = hooks.rotate(where, hook)
    _print_secret(session, made, "For a day messages carry a signature of the old one too.")


def deliveries(
    ctx: typer.Context,
    hook: Ref,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="How many.")] = 20,
    project: Project = None,
) -> None:
    """List the last tries to tell a hook something, newest first."""
    with _hooks(ctx, project) as (session, hooks, where):
        found = hooks.deliveries(where, hook, limit=limit)
    heads = ("AT", "TYPE", "JOB", "OUTCOME", "SECONDS", "ANSWER")
    listing = Listing(heads, _delivery_row, lambda tried: tried.id, "It was told nothing yet.")
    session.out.listing(found, listing, project=where)


def remove(ctx: typer.Context, hook: Ref, project: Project = None, yes: Yes = False) -> int:
    """Remove a hook and its secret."""
    with _hooks(ctx, project) as (session, hooks, where):
        found = hooks.get(where, hook)
        if not session.confirm(f"Remove {short(found.id)}, which tells {found.url}?", yes=yes):
            return 1
        hooks.remove(where, found.id)
    if session.out.as_json:
        session.out.json({"project": where, "id": found.id, "removed": True})
    session.out.say(f"{short(found.id)} is removed.")
    return 0


@contextmanager
def _hooks(ctx: typer.Context, project: str | None) -> Iterator[tuple[Session, Hooks, str]]:
    """The session, the server's hooks, and the project that is meant."""
    session = Session.of(ctx)
    with session.api() as api:
        yield session, api.hooks, chosen_project(session, api, project)


def _switch(ctx: typer.Context, hook: str, project: str | None, *, on: bool) -> None:
    with _hooks(ctx, project) as (session, hooks, where):
        changed = hooks.change(where, hook, enabled=on)
    if session.out.as_json:
        session.out.json(changed.as_json())
    session.out.say(f"{short(changed.id)} is {'enabled: it is told what happens from now on' if on else 'disabled'}.")


def _events(given: list[str] | None) -> tuple[HookEvent, ...]:
    words = [word.strip() for item in given or () for word in item.split(",") if word.strip()]
    for word in words:
        if word not in set(HookEvent):
            raise UnknownName("event", word, [item.value for item in HookEvent])
    return tuple(dict.fromkeys(map(HookEvent, words)))


def _print_secret(session: Session, made: HookView, words: str) -> None:
    if session.out.as_json:
        session.out.json(made.as_json())
        return
    session.out.data(str(made.secret))
    session.out.say(
        f"What was printed is the signing secret of {short(made.id)}; it is not shown again. Receivers check messages "
        f"with it (docs/notifications.md). {words}"
    )


def _show(session: Session, hook: HookView) -> None:
    if session.out.as_json:
        session.out.json(hook.as_json())
        return
    if session.out.quiet:
        session.out.data(hook.id)
        return
    failing = f"{hook.failures} in a row, since {ago_words(hook.failing_since)}" if hook.failures else None
    session.out.fields(
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
            ("Next try", hook.next_try_at),
            ("Last", _last(hook) or "never"),
            ("Answer", hook.last.answer if hook.last else None),
            ("Made", f"{ago_words(hook.created_at)} by {hook.made_by}"),
            ("Rotated", ago_words(hook.rotated_at)),
        )
    )


def _row(hook: HookView) -> tuple[str, ...]:
    return short(hook.id), hook.url, ", ".join(hook.events), hook.state, _last(hook)


def _last(hook: HookView) -> str:
    return f"{_outcome(hook.last)} {ago_words(hook.last.at)}" if hook.last else ""


def _outcome(tried: DeliveryView) -> str:
    answered = f" ({tried.status})" if tried.status is not None else ""
    return f"{tried.outcome.replace('_', ' ')}{answered}"


def _delivery_row(tried: DeliveryView) -> tuple[str, ...]:
    job = short(tried.job) if tried.job else ""
    return tried.at or "", tried.type, job, _outcome(tried), f"{tried.seconds:.2f}", tried.answer or ""
