"""Backends: connected ones with their offers, and known others; connecting, checking and disconnecting."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection, select

from crucible.backends.base import Backend, Finding, Leaves, Seen
from crucible.backends.settings import HIDDEN, BackendSettings, SettingField, fill, stored_values
from crucible.control.connections import rows
from crucible.control.connections.factory import STORED
from crucible.control.connections.redaction import redact, redact_error
from crucible.control.connections.rows import StoredConnection
from crucible.control.connections.sync import LEAVE_DEADLINE, TOPIC
from crucible.control.db import schema as t
from crucible.control.jobs import queries
from crucible.control.jobs.views import backend_view, iso, offer_view
from crucible.control.people import audit, projects
from crucible.control.reconcile.unit_of_work import SCHEDULER
from crucible.control.runtime.services import Services
from crucible.control.scheduling.backends import list_unconnected, why_unconnected
from crucible.core.compute.offers import Need, Offer
from crucible.core.errors import BadInput, Conflict, CrucibleError, NotFound, UnknownName
from crucible.core.ids import short
from crucible.core.people.identity import DEFAULT_PROJECT, Identity, Permission
from crucible.core.secret import Secret
from crucible.core.settings_source import SettingsSource
from crucible.core.views.backends import (
    BackendCheckView,
    BackendDisconnectView,
    BackendSettingsView,
    CheckFindingView,
    SettingChangeView,
    SettingView,
)
from crucible.core.views.compute import BackendPage, OtherBackendView
from crucible.core.views.problems import ErrorView

CHECK_DEADLINE = 60.0
OFFERS_SECONDS = 10.0
"""How long `connect` waits for the offers that it has just seen, so that the next submission knows them."""
MOST_OFFERS = 5
"""Number of offers shown with a check."""


class CheckFailed(BadInput):
    """A backend was not connected, because a check failed; `data["findings"]` has all of them."""

    code = "check_failed"


@dataclass(frozen=True)
class ProposedBackend:
    """A backend as it would be with the settings of a request. `stored` and `secrets` are what would be stored."""

    name: str
    backend: Backend
    settings: BackendSettings
    before: StoredConnection | None
    stored: Mapping[str, object] = field(repr=False)
    secrets: Mapping[str, Secret]
    changes: tuple[SettingChangeView, ...]


class Backends:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._ports = services.ports
        self._backends = services.backends
        self._offers = services.offers
        self._factory = services.deployment.factory
        self._sync = services.connections
        self._store = services.connection_store

    async def list_backends(self) -> BackendPage:
        """Return connected backends with their offers; `others` has known ones, each with how to connect it."""
        backends, names, problems = self._backends, self._backends.names(), dict(self._sync.problems)
        broken = {name: str(error) for name, error in problems.items() if name not in names}
        others = {name: f"{why_unconnected(name)}." for name in list_unconnected(names)} | broken
        return BackendPage(
            items=tuple(backend_view(backends.get(name), self._offers_of(name)) for name in names),
            others=tuple(OtherBackendView(name=name, why=why) for name, why in others.items()),
        )

    def _offers_of(self, name: str) -> Sequence[Offer]:
        """Return the backend's offers, none of them runnable while it is being disconnected."""
        offers, rejected = self._offers.get(name) or (), self._backends.rejection(name, secrets=False)
        if rejected is None:
            return offers
        return [replace(offer, why_not=offer.why_not or str(rejected)) for offer in offers]

    async def show(self, who: Identity, name: str) -> BackendSettingsView:
        """Return the backend's settings: what each means, its value and where that comes from. Secrets are hidden."""
        who.require(Permission.OPERATE)
        model, fields = self._factory.model(name), self._factory.fields(name)
        stored, now = await self._ports.db.read(lambda conn: rows.find(conn, name)), self._ports.clock.now()
        machines = await self._ports.db.read(
            lambda conn: queries.list_machines(conn, now, gone_too=False, backend=name)
        )
        hidden = {} if stored is None else {**stored.settings, **dict.fromkeys(stored.secrets, HIDDEN)}
        values, origins = dict(hidden), dict.fromkeys(hidden, STORED)
        for source in self._factory.overriding_sources(name):
            for key, value in source.values.items():
                values[key], origins[key] = value, source.origins.get(key, source.origin)
        problem = self._sync.problems.get(name)
        return BackendSettingsView(
            name=name,
            state=self._state(name, stored),
            connected_by=self._factory.configured_by
            if name in self._factory.configured
            else STORED
            if stored
            else None,
            updated_at=None if stored is None else iso(stored.updated_at),
            updated_by=None if stored is None else stored.updated_by,
            about=(model.__doc__ or "").strip(),
            install=self._factory.install_command(name),
            operators_only=self._backends.has(name) and self._backends.get(name).capabilities.operators_only,
            problem=None if problem is None else ErrorView(what=problem.what, why=problem.why, fix=problem.fix),
            settings=tuple(_setting_view(each, values.get(each.name), origins.get(each.name)) for each in fields),
            machines=machines.items,
        )

    async def check(self, who: Identity, name: str, requested: Mapping[str, object]) -> BackendCheckView:
        """Check the backend as it would be with these settings on top of its own. Changes nothing."""
        who.require(Permission.OPERATE)
        proposed = await self._propose(name, requested)
        try:
            return await self._check(proposed)
        finally:
            await self._leave(proposed)

    async def connect(self, who: Identity, name: str, requested: Mapping[str, object]) -> BackendCheckView:
        """Connect the backend with these settings on top of the stored ones, if its check finds nothing wrong.

        Settings that are not given stay; an empty one is removed. Raises CheckFailed, and Conflict if somebody else
        connects it meanwhile.
        """
        who.require(Permission.OPERATE)
        proposed = await self._propose(name, requested)
        checked = await self._check(proposed)
        if not checked.ok:
            await self._leave(proposed)
            raise _check_failed(checked)
        await self._ports.write(lambda conn, now: self._put(conn, who, proposed, now))
        self._ports.wakeups.wake(TOPIC)
        await self._sync.sync()
        await self._offers.fetch([(name, Need())], OFFERS_SECONDS)
        self._wake()
        return checked.model_copy(update={"connected": self._backends.has(name)})

    async def disconnect(self, who: Identity, name: str) -> BackendDisconnectView:
        """Place nothing on the backend any more, and remove its connection once its machines are gone.

        Raises Conflict if the configuration connects it, and NotFound if it is not connected.
        """
        who.require(Permission.OPERATE)
        self._factory.model(name)  # raises UnknownName
        if name in self._factory.configured:
            raise self._configured_error(name)
        closing = await self._ports.write(lambda conn, now: self._close(conn, who, name, now))
        self._ports.wakeups.wake(TOPIC)
        await self._sync.sync()
        findings = await self._services.disconnector.finish(closing)
        await self._sync.sync()
        self._wake()
        now = self._ports.clock.now()
        left = await self._ports.db.read(lambda conn: queries.list_machines(conn, now, gone_too=False, backend=name))
        return BackendDisconnectView(
            name=name,
            state="disconnecting" if findings is None else "not connected",
            machines=left.items if findings is None else (),
            findings=tuple(map(_finding_view, findings or ())),
        )

    # Checking

    async def _propose(self, name: str, requested: Mapping[str, object]) -> ProposedBackend:
        """Return the backend with the settings of the request. Raises an error that names the setting to correct."""
        model = self._factory.model(name)
        for key in requested:
            if key not in model.model_fields:
                fix = f"`crucible backends show {name}` describes them."
                raise UnknownName(f"setting of {name}", key[:80], model.model_fields, fix=fix)
        before, stored = await self._ports.db.read(lambda conn: self._read(conn, name, requested))
        changed = {key: value for key, value in requested.items() if not _is_empty(value)}
        kept = {key: value for key, value in stored.items() if key not in requested}
        effective = self._factory.fill(name, kept, changed).settings
        # What is stored must be valid by itself, also where a file or a variable overrides it.
        asked = SettingsSource("the request", changed)
        valid = fill(
            name, model, [*self._factory.overriding_sources(name), SettingsSource(STORED, kept), asked]
        ).settings
        if "projects" in changed:
            await self._ports.db.read(lambda conn: _require_projects(conn, valid.projects))
        named = {*kept, *changed}
        secrets = {key: value for key, value in valid.secrets().items() if key in named}
        plain = stored_values(valid, named)
        changes = _changes(self._factory.fields(name), stored, {**plain, **secrets})
        live = self._backends.has(name) and not changes and name not in self._sync.problems
        backend = self._backends.get(name) if live else await self._sync.make(name, effective)
        return ProposedBackend(name, backend, effective, before, plain, secrets, changes)

    def _read(
        self, conn: Connection, name: str, requested: Mapping[str, object]
    ) -> tuple[StoredConnection | None, dict[str, object]]:
        """Return the connection and its values; those of secrets are only needed if not all of them are given."""
        found = rows.find(conn, name)
        if found is None:
            return None, {}
        if requested.keys() >= set(found.secrets):
            return found, dict(found.settings)
        return found, self._store.values(conn, found)

    async def _check(self, proposed: ProposedBackend) -> BackendCheckView:
        name, backend, secrets = proposed.name, proposed.backend, tuple(proposed.settings.secrets().values())
        lane = f"check {name}"
        try:
            findings = list(await self._ports.calls.run(lane, backend.check, CHECK_DEADLINE))
            findings += await self._lost_machines(proposed, lane)
            offers = await self._ports.calls.run(lane, lambda: backend.offers(Need()), CHECK_DEADLINE)
        except CrucibleError as error:
            redact_error(error, secrets)
            findings, offers = [Finding(error.what, ok=False, why=error.why, fix=error.fix)], ()
        best = sorted(offers, key=lambda offer: (not offer.runnable, offer.rate))[:MOST_OFFERS]
        return BackendCheckView(
            name=name,
            ok=all(finding.ok for finding in findings),
            connected=False,
            findings=tuple(_finding_view(finding, secrets) for finding in findings),
            offers=tuple(map(offer_view, best)),
            changes=proposed.changes,
            operators_only=backend.capabilities.operators_only,
            projects=proposed.settings.projects,
        )

    async def _lost_machines(self, proposed: ProposedBackend, lane: str) -> list[Finding]:
        """Return a warning if machines are alive that the new settings do not reach, such as those of a host less."""
        name, backend = proposed.name, proposed.backend
        if not proposed.changes:
            return []
        alive = await self._ports.db.read(lambda conn: rows.alive_refs(conn, name))
        seen = await self._ports.calls.run(lane, lambda: backend.poll(alive), CHECK_DEADLINE) if alive else ()
        lost = [each.ref for each in seen if each.seen in (Seen.GONE, Seen.UNREACHABLE)]
        if not lost:
            return []
        listed = ", ".join(f"{short(ref.machine)} ({ref.region})" for ref in lost)
        why = "Their jobs go on, and nothing is known of them until the settings reach them again."
        fix = "A list in the settings is replaced as a whole: name what stays too."
        return [Finding(f"machines that these settings do not reach: {listed}", why=why, fix=fix, warning=True)]

    async def _leave(self, proposed: ProposedBackend) -> None:
        """Let a backend that was only made for a check end what it has started."""
        backend = proposed.backend
        if isinstance(backend, Leaves) and not self._backends.has(proposed.name):
            with contextlib.suppress(CrucibleError):
                await self._ports.calls.run(f"check {proposed.name}", backend.leave, LEAVE_DEADLINE)

    # Writing

    def _put(self, conn: Connection, who: Identity, proposed: ProposedBackend, now: float) -> None:
        name, known = proposed.name, rows.find(conn, proposed.name)
        if (known and known.stamp) != (proposed.before and proposed.before.stamp):
            raise Conflict(
                f"The settings of {name} were changed meanwhile.",
                why="Somebody else connected or disconnected it while it was checked.",
                fix=f"Look at `crucible backends show {name}`, then try again.",
            )
        self._store.put(conn, name, proposed.stored, proposed.secrets, now, who.name)
        data = {"settings": sorted({*proposed.stored, *proposed.secrets}), "new": known is None}
        audit.record(conn, who, "backend.connect", name, now, data=data)

    def _close(self, conn: Connection, who: Identity, name: str, now: float) -> StoredConnection:
        known = rows.find(conn, name)
        if known is None:
            left = rows.alive_machines(conn, name)
            why = f"Machines of it are still known: {', '.join(left)}. Connect it again to end them." if left else ""
            raise NotFound(f"{name} is not connected.", why=why, fix="`crucible backends` lists what is.")
        if rows.close(conn, name, now):
            audit.record(conn, who, "backend.disconnect", name, now)
        closing = rows.find(conn, name)
        assert closing is not None, "it was found in this transaction"
        return closing

    def _configured_error(self, name: str) -> Conflict:
        others = ",".join(each for each in self._factory.configured if each != name) or "none"
        origin = self._factory.configured_by
        return Conflict(
            f"{name} is connected by the configuration of the server.",
            why=f"The setting `backends` names it; it comes from {origin}.",
            fix=f"Change it to {others} (the variable CRUCIBLE_BACKENDS, or `crucible config set backends {others}`), "
            "then: crucible down, crucible up",
        )

    def _state(self, name: str, stored: StoredConnection | None) -> str:
        if stored is not None and stored.closing_at is not None:
            return "disconnecting"
        if self._backends.has(name):
            return "connected"
        return "failed" if name in self._sync.problems else "not connected"

    def _wake(self) -> None:
        for topic in ("duties", "effects", "jobs", SCHEDULER, "plans"):
            self._ports.wakeups.wake(topic)


def _require_projects(conn: Connection, names: Sequence[str]) -> None:
    for name in names:
        if not projects.exists(conn, name):
            known = {DEFAULT_PROJECT, *conn.execute(select(t.projects.c.name)).scalars()}
            raise UnknownName("project", name[:80], known, fix="`crucible projects` lists them.")


def _is_empty(value: object) -> bool:
    return value is None or value in ("", [])


def _changes(
    fields: Sequence[SettingField], before: Mapping[str, object], after: Mapping[str, object]
) -> tuple[SettingChangeView, ...]:
    """Return the stored settings that change, in the order of the fields."""
    return tuple(
        SettingChangeView(name=each.name, before=_show(each, before), after=_show(each, after))
        for each in fields
        if before.get(each.name) != after.get(each.name)
    )


def _show(declared: SettingField, values: Mapping[str, object]) -> str | None:
    value = values.get(declared.name)
    if value is None:
        return None
    if declared.secret:
        return HIDDEN
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _setting_view(declared: SettingField, value: object, origin: str | None) -> SettingView:
    shown = declared.default if origin is None else value
    return SettingView(
        name=declared.name,
        description=declared.description,
        kind=declared.kind,
        required=declared.required,
        secret=declared.secret,
        many=declared.many,
        option=declared.option,
        variables=declared.variables,
        value=_show(declared, {declared.name: shown}),
        origin=origin or "default",
    )


def _finding_view(finding: Finding, secrets: Sequence[Secret] = ()) -> CheckFindingView:
    what, why, fix = (redact(part, secrets) for part in (finding.what, finding.why, finding.fix))
    return CheckFindingView(what=what, ok=finding.ok, why=why, fix=fix, warning=finding.warning)


def _check_failed(checked: BackendCheckView) -> CheckFailed:
    failed = [finding for finding in checked.findings if not finding.ok]
    return CheckFailed(
        f"{checked.name} was not connected, because {len(failed)} of {len(checked.findings)} checks failed.",
        why=" ".join(f"{each.what.rstrip('.')}: {each.why}" if each.why else each.what for each in failed),
        fix=" ".join(each.fix for each in failed if each.fix),
        findings=[finding.as_json() for finding in checked.findings],
    )
