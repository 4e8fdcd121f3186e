"""Machines of this deployment, and orphans: machines that exist at a provider and should not."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, replace

from sqlalchemy import Connection, select

from crucible.backends.base import LaunchCall, MachineRef, NotYetGone, Seen, end_only
from crucible.control.db import schema as t
from crucible.control.jobs import queries
from crucible.control.machines.janitor import LIST_DEADLINE, Janitor
from crucible.control.reconcile import codec, repository
from crucible.control.reconcile.unit_of_work import UnitOfWork, Writer
from crucible.control.resources.access import Access
from crucible.control.runtime.ports import Ports
from crucible.control.scheduling.backends import ConnectedBackends
from crucible.core.errors import Conflict, NotFound, TimedOut, Unreachable
from crucible.core.ids import is_id, short
from crucible.core.lifecycle import Machine
from crucible.core.lifecycle.facts import DeclaredLost, Unwanted
from crucible.core.people.identity import Identity, Permission
from crucible.core.views.compute import MachinePage, MachineView, OrphanPage, OrphanView

UNKNOWN = "unknown to this deployment's database"
LEFT_OVER = "it should be gone"
DOUBLE = "a second instance of a machine that has another"


@dataclass(frozen=True)
class Machines:
    ports: Ports
    backends: ConnectedBackends
    writer: Writer
    janitor: Janitor
    access: Access

    async def list_machines(self, who: Identity, *, all: bool = False) -> MachinePage:
        """Return the machines; with `all` including those that are gone."""
        now = self.ports.clock.now()
        return await self.ports.db.read(lambda conn: queries.list_machines(conn, now, gone_too=all, who=who))

    async def list_orphans(self, who: Identity) -> OrphanPage:
        """Return machines that carry our tag but are unknown here or should be gone. Nothing is terminated."""
        who.require(Permission.OPERATE)
        report = await self.janitor.inspect()
        doubles = [replace(ref, machine="") for ref in report.duplicates]
        groups = ((UNKNOWN, report.unknown), (LEFT_OVER, report.leftovers), (DOUBLE, doubles))
        return OrphanPage(items=tuple(_orphan(ref, why) for why, refs in groups for ref in refs))

    async def terminate(self, who: Identity, ref: str) -> MachineView | OrphanView:
        """Terminate a machine, whatever runs on it: one of ours by its row, an orphan directly at its provider.

        `ref` is our id, its short form, or an orphan's native id. Idempotent.
        """
        await self.access.require_operator(who, "machine.terminate", ref)
        machine = await self.ports.db.read(lambda conn: _find(conn, ref))
        if machine is None or not machine.alive:
            return await self._end_orphan(ref, machine)
        await self.writer.write(lambda unit: _release(unit, machine.id))
        now = self.ports.clock.now()
        return await self.ports.db.read(lambda conn: queries.read_machine(conn, machine.id, now))

    async def declare_lost(self, who: Identity, ref: str) -> MachineView:
        """Take a machine for gone whose provider does not answer and never will, such as a host that broke.

        Its jobs may start again elsewhere, so they run twice if it runs after all. If it returns, it is terminated as a
        leftover. Raises Conflict if the provider answers. Idempotent.
        """
        await self.access.require_operator(who, "machine.declare_lost", ref)
        machine = await self.ports.db.read(lambda conn: _find(conn, ref))
        if machine is None:
            raise _not_found(ref)
        if machine.alive:
            if await self._answers(machine):
                raise Conflict(
                    f"{short(machine.id)} is not lost: {machine.backend} answers.",
                    fix=f"Terminate it: crucible machines terminate {short(machine.id)}",
                )
            await self.writer.write(lambda unit: _lose(unit, machine.id, who))
        now = self.ports.clock.now()
        return await self.ports.db.read(lambda conn: queries.read_machine(conn, machine.id, now))

    async def _answers(self, machine: Machine) -> bool:
        """Return whether the machine's provider says anything about it now."""
        if not self.backends.has(machine.backend):
            return False
        backend, native_id = self.backends.get(machine.backend), machine.claimed_by or machine.native_id
        try:
            if native_id is None:
                token = LaunchCall(**json.loads(machine.call)).token
                await self.ports.calls.run(backend.name, lambda: backend.find(token), LIST_DEADLINE)
                return True
            found = MachineRef(backend.name, machine.id, native_id, machine.region)
            seen = await self.ports.calls.run(backend.name, lambda: backend.poll([found]), LIST_DEADLINE)
        except (Unreachable, TimedOut):
            return False
        return any(each.seen is not Seen.UNREACHABLE for each in seen)

    async def _end_orphan(self, ref: str, known: Machine | None) -> MachineView | OrphanView:
        """Terminate what still exists at the provider; return the machine unchanged if nothing does."""
        report = await self.janitor.inspect()
        for orphan in (*report.unknown, *report.leftovers, *report.duplicates):
            names = (orphan.native_id, orphan.machine, short(orphan.machine))
            if ref in (names if orphan not in report.duplicates else names[:1]):
                await self._end(orphan)
                return _orphan(orphan, "it is being terminated")
        if known is not None:
            now = self.ports.clock.now()
            return await self.ports.db.read(lambda conn: queries.read_machine(conn, known.id, now))
        raise _not_found(ref)

    async def _end(self, orphan: MachineRef) -> None:
        backend = self.backends.get(orphan.backend)
        with contextlib.suppress(NotYetGone):
            await self.ports.calls.run(orphan.backend, lambda: end_only(backend, orphan), LIST_DEADLINE)


def _find(conn: Connection, ref: str) -> Machine | None:
    c = t.machines.c
    ending = ref.lower().removeprefix("mch-")
    if is_id(ref):
        query = select(t.machines).where(c.id == ref)
    elif len(ending) >= 3 and ending.isalnum():
        query = select(t.machines).where(c.id.endswith(ending)).limit(2)
    else:
        return None
    rows = conn.execute(query).mappings().all()
    if len(rows) > 1:
        raise Conflict(f"{ref!r} fits several machines.", fix="Type more of the id.")
    return codec.machine_from_row(rows[0]) if rows else None


def _not_found(ref: str) -> NotFound:
    return NotFound(f"There is no machine {ref!r}.", fix="`crucible machines --all` and `machines orphans` list them.")


def _lose(unit: UnitOfWork, machine: str, who: Identity) -> None:
    row = repository.load_machine(unit.conn, machine)
    assert row is not None, "machines are never deleted"
    unit.advance_machine(row, DeclaredLost(f"{who.name} declared it lost"))


def _release(unit: UnitOfWork, machine: str) -> None:
    row = repository.load_machine(unit.conn, machine)
    assert row is not None, "machines are never deleted"
    unit.advance_machine(row, Unwanted("a person ended it"))


def _orphan(ref: MachineRef, why: str) -> OrphanView:
    return OrphanView(
        backend=ref.backend,
        machine=ref.machine or None,
        short=short(ref.machine) if ref.machine else None,
        native_id=ref.native_id,
        region=ref.region,
        why=why,
    )
