"""Webhooks, for users who manage a project: a hook sends the project's events to a URL."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from sqlalchemy import Connection

from crucible.control.hooks import deliveries, messages, rows
from crucible.control.hooks.rows import Hook
from crucible.control.hooks.sender import Sender
from crucible.control.jobs.views import iso
from crucible.control.people import audit, projects
from crucible.control.reconcile.unit_of_work import HOOKS
from crucible.control.resources.access import Access
from crucible.control.runtime.ports import Ports
from crucible.core.errors import BadInput, RefusedByPolicy, TimedOut, Unreachable
from crucible.core.hooks import MOST_HOOKS, DeliveryOutcome, FailureStreak, HookEvent, HookFormat
from crucible.core.ids import Prefix
from crucible.core.people.identity import Identity, Permission
from crucible.core.secret import Secret
from crucible.core.views.hooks import DeliveryPage, DeliveryView, HookPage, HookView


class Hooks:
    """The hooks of projects. Only `add` and `rotate` return the signing secret, as `secret` of the view."""

    def __init__(self, ports: Ports, access: Access, sender: Sender) -> None:
        self._ports = ports
        self._access = access
        self._sender = sender

    async def list_hooks(self, who: Identity, project: str) -> HookPage:
        await self._require_manager(who, project)
        views = await self._ports.db.read(lambda conn: [_view(conn, hook) for hook in rows.list_hooks(conn, project)])
        return HookPage(items=tuple(views))

    async def get(self, who: Identity, project: str, ref: str) -> HookView:
        await self._require_manager(who, project)
        return await self._ports.db.read(lambda conn: _view(conn, rows.find(conn, project, ref)))

    async def add(
        self,
        who: Identity,
        project: str,
        url: str,
        *,
        events: Sequence[HookEvent],
        format: HookFormat,
        secret: Secret,
    ) -> HookView:
        await self._require_manager(who, project)
        await self._check(url)
        name = self._ports.ids.new(Prefix.HOOK)

        def put(conn: Connection, now: float) -> HookView:
            projects.require(conn, project)
            _require_room(conn, project)
            start = rows.newest_cursor(conn)
            hook = Hook(name, project, url, tuple(events), format, who.name, now, True, "", start, 0.0, FailureStreak())
            rows.add(conn, hook)
            self._sender.put_secret(conn, hook, secret, now, who.name)
            self._note(conn, who, "hook.create", hook, now, host=_host(url), events=sorted(events))
            return _with_secret(_view(conn, hook), secret)

        return await self._ports.write(put)

    async def change(
        self,
        who: Identity,
        project: str,
        ref: str,
        *,
        url: str | None = None,
        events: Sequence[HookEvent] | None = None,
        enabled: bool | None = None,
    ) -> HookView:
        await self._require_manager(who, project)
        if url is not None:
            await self._check(url)

        def put(conn: Connection, now: float) -> HookView:
            hook = rows.find(conn, project, ref)
            rows.change(conn, hook, url or hook.url, events or hook.events)
            if enabled is not None:
                rows.set_enabled(conn, hook, on=enabled)
            self._note(conn, who, "hook.change", hook, now, **_changes(url, events, enabled))
            return _view(conn, rows.find(conn, project, hook.id))

        changed = await self._ports.write(put)
        self._ports.wakeups.wake(HOOKS)
        return changed

    async def rotate(self, who: Identity, project: str, ref: str, secret: Secret) -> HookView:
        """Set a new signing secret; for a day, messages are signed with the old one too."""
        await self._require_manager(who, project)

        def put(conn: Connection, now: float) -> HookView:
            hook = rows.find(conn, project, ref)
            self._sender.replace_secret(conn, hook, secret, now, who.name)
            rows.mark_rotated(conn, hook, now)
            self._note(conn, who, "hook.rotate", hook, now)
            return _with_secret(_view(conn, rows.find(conn, project, hook.id)), secret)

        return await self._ports.write(put)

    async def remove(self, who: Identity, project: str, ref: str) -> None:
        await self._require_manager(who, project)

        def drop(conn: Connection, now: float) -> None:
            hook = rows.find(conn, project, ref)
            rows.remove(conn, hook)
            self._sender.delete_secret(conn, hook)
            self._note(conn, who, "hook.remove", hook, now, host=_host(hook.url))

        await self._ports.write(drop)

    async def test(self, who: Identity, project: str, ref: str) -> DeliveryView:
        """Send a ping now, even to a disabled hook, and return the receiver's response."""
        await self._require_manager(who, project)
        hook = await self._ports.db.read(lambda conn: rows.find(conn, project, ref))
        message = messages.ping_message(hook, self._ports.clock.now())
        sent = await self._sender.send(hook, message)
        outcome = DeliveryOutcome.DELIVERED if sent.reply.accepted else DeliveryOutcome.FAILED

        def put(conn: Connection, now: float) -> DeliveryView | None:
            deliveries.add(conn, rows.find(conn, project, hook.id).id, message, sent, outcome)
            self._note(conn, who, "hook.test", hook, now, outcome=outcome.value)
            return deliveries.last(conn, hook.id)

        delivery = await self._ports.write(put)
        assert delivery is not None, "it was added in this transaction"
        return delivery.model_copy(update={"hook": hook.id})

    async def list_deliveries(self, who: Identity, project: str, ref: str, *, limit: int) -> DeliveryPage:
        """Return the latest delivery attempts, newest first."""
        await self._require_manager(who, project)
        views = await self._ports.db.read(
            lambda conn: deliveries.list_deliveries(conn, rows.find(conn, project, ref).id, limit)
        )
        return DeliveryPage(items=tuple(views))

    async def _require_manager(self, who: Identity, project: str) -> None:
        await self._access.require_project(who, project, Permission.MANAGE)

    async def _check(self, url: str) -> None:
        """Check the URL. A host that cannot be resolved or reached is BadInput here, not an error of the server."""
        try:
            await self._sender.check(url)
        except (TimedOut, Unreachable) as error:
            raise BadInput(error.what, why=error.why, fix=error.fix, field="url") from error

    def _note(self, conn: Connection, who: Identity, action: str, hook: Hook, now: float, **data: object) -> None:
        """Audit a change. `data` has only the host of a URL, whose path is often a secret itself."""
        audit.record(conn, who, action, hook.id, now, project=hook.project, data=data)


def _require_room(conn: Connection, project: str) -> None:
    if len(rows.list_hooks(conn, project)) >= MOST_HOOKS:
        raise RefusedByPolicy(
            f"The project {project!r} has {MOST_HOOKS} hooks, the most it may have.",
            fix=f"Remove one: crucible notifications remove HOOK --project {project}",
        )


def _changes(url: str | None, events: Sequence[HookEvent] | None, enabled: bool | None) -> dict[str, object]:
    fields = {"host": _host(url) if url else None, "events": sorted(events) if events else None, "enabled": enabled}
    return {name: value for name, value in fields.items() if value is not None}


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _with_secret(view: HookView, secret: Secret) -> HookView:
    return view.model_copy(update={"secret": secret.reveal()})


def _view(conn: Connection, hook: Hook) -> HookView:
    failing = hook.standing.failures > 0
    return HookView(
        id=hook.id,
        project=hook.project,
        url=hook.url,
        events=tuple(event.value for event in hook.events),
        format=hook.format.value,
        state=_state(hook),
        enabled=hook.enabled,
        disabled_why=hook.disabled_why or None,
        failures=hook.standing.failures,
        failing_since=iso(hook.standing.since),
        given_up=hook.given_up,
        next_try_at=iso(hook.not_before) if failing and hook.enabled and hook.not_before else None,
        last=deliveries.last(conn, hook.id),
        created_at=iso(hook.created_at),
        made_by=hook.made_by,
        rotated_at=iso(hook.rotated_at),
    )


def _state(hook: Hook) -> str:
    if not hook.enabled:
        return "disabled"
    return "failing" if hook.standing.failures else "enabled"
