"""Compare what the providers list with what the database knows, and end what is left over.

Machines that are known and unwanted are ended again and again until they are gone. Machines unknown to us are only
reported: a person decides about something that may not be ours.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog
from sqlalchemy import select

from crucible.backends.base import MachineRef, end_only
from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.reconcile import codec, repository
from crucible.control.reconcile.unit_of_work import UnitOfWork, Writer
from crucible.control.runtime.ports import Ports
from crucible.control.scheduling.backends import ConnectedBackends
from crucible.control.upkeep import restore_hold
from crucible.core.errors import CrucibleError
from crucible.core.lifecycle import Effect, EffectKind, Machine, MachineState
from crucible.core.lifecycle.facts import Unwanted

log = structlog.get_logger(__name__)

LIST_DEADLINE = 30.0

_HELD = (MachineState.CREATING.value, MachineState.UP.value)

_ENDING = select(t.effects.c.machine).where(t.effects.c.done.is_(False), t.effects.c.kind == EffectKind.TERMINATE.value)
_STUCK = Statement(
    select(t.machines.c.id).where(t.machines.c.state == MachineState.RELEASING.value, t.machines.c.id.not_in(_ENDING))
)


@dataclass(frozen=True)
class JanitorReport:
    """`unknown` machines carry our tag but have no row; `leftovers` are gone according to their row.

    `duplicates` are second instances of a machine that another instance has claimed: the provider ignored our token.
    """

    unknown: tuple[MachineRef, ...] = ()
    leftovers: tuple[MachineRef, ...] = ()
    duplicates: tuple[MachineRef, ...] = ()


class Janitor:
    def __init__(self, ports: Ports, backends: ConnectedBackends, writer: Writer, deployment: str) -> None:
        self._ports = ports
        self._backends = backends
        self._writer = writer
        self._deployment = deployment

    async def tidy(self) -> JanitorReport:
        """Inspect every backend at once, end what is left over, and log what is unknown."""
        found = await self.inspect()
        for ref in found.unknown:
            log.error("a machine with our tag is unknown to us", machine=ref.machine, native_id=ref.native_id)
        for ref in (*found.leftovers, *found.duplicates):
            await self._end(ref)
        return found

    async def inspect(self) -> JanitorReport:
        """Return what the providers list that has no use. Nothing is ended."""
        found = await asyncio.gather(*map(self._inspect, self._backends.names()))
        return JanitorReport(
            unknown=tuple(ref for findings in found for ref in findings.unknown),
            leftovers=tuple(ref for findings in found for ref in findings.leftovers),
            duplicates=tuple(ref for findings in found for ref in findings.duplicates),
        )

    async def _inspect(self, name: str) -> JanitorReport:
        try:
            judged = [(ref, await self._load_machine(ref)) for ref in await self._list_owned(name)]
            strangers = tuple(ref for ref, machine in judged if machine is None)
            await self._record_listing(name, clear=not strangers)
        except CrucibleError as error:
            log.warning("listing machines failed", backend=name, error=str(error))
            return JanitorReport()
        known = [(ref, machine) for ref, machine in judged if machine is not None]
        leftovers = tuple(ref for ref, machine in known if not machine.alive)
        return JanitorReport(strangers, leftovers, tuple(ref for ref, machine in known if _is_duplicate(machine, ref)))

    async def _list_owned(self, name: str) -> list[MachineRef]:
        backend = self._backends.get(name)
        return list(await self._ports.calls.run(name, lambda: backend.owned(self._deployment), LIST_DEADLINE))

    async def _load_machine(self, ref: MachineRef) -> Machine | None:
        return await self._ports.db.read(lambda conn: repository.load_machine(conn, ref.machine))

    async def _record_listing(self, name: str, *, clear: bool) -> None:
        """Record, after a restore, whether we know all that this backend lists. Jobs wait until that holds for all."""
        if await self._ports.db.read(restore_hold.is_held):
            now, window = self._ports.clock.now(), self._backends.get(name).capabilities.settle_window
            await self._ports.db.write(
                lambda conn: restore_hold.record_scan(conn, name, now, strangers=not clear, settle_window=window)
            )

    async def _end(self, ref: MachineRef) -> None:
        """End an instance directly. Its row says already that it is gone, and stays as it is."""
        if await self._ports.db.read(restore_hold.is_held):
            log.warning(
                "left alone after a restore", machine=ref.machine, native_id=ref.native_id, why=restore_hold.WHY
            )
            return
        log.warning("ending what is left of a machine", machine=ref.machine, native_id=ref.native_id)
        backend = self._backends.get(ref.backend)
        try:
            await self._ports.calls.run(ref.backend, lambda: end_only(backend, ref), LIST_DEADLINE)
        except CrucibleError as error:
            log.warning("it does not end yet", machine=ref.machine, error=str(error))

    async def release_stuck(self) -> None:
        """Give every machine that is being released an open termination, if it has none."""

        def ensure(unit: UnitOfWork) -> None:
            wanted = [Effect(EffectKind.TERMINATE, machine) for machine in _STUCK.column(unit.conn)]
            repository.add_effects(unit.conn, wanted, unit.now)
            unit.changes.effects |= bool(wanted)

        await self._writer.write(ensure)


def _is_duplicate(machine: Machine, ref: MachineRef) -> bool:
    """Return whether the machine was claimed by another instance than this one."""
    return machine.alive and machine.claimed_by is not None and machine.claimed_by != ref.native_id


def release_idle_pools(unit: UnitOfWork) -> int:
    """Release every pool machine that no attempt occupies; return how many. After a restore: only newer ones."""
    c = t.machines.c
    certain = c.created_at >= (restore_hold.unconfirmed_since(unit.conn) or 0.0)
    busy = select(t.slots.c.machine).where(t.slots.c.ended.is_(False))
    idle = select(t.machines).where(c.owner.startswith("pool:"), c.state.in_(_HELD), c.id.not_in(busy), certain)
    machines = [codec.machine_from_row(row) for row in unit.conn.execute(idle).mappings().all()]
    for machine in machines:
        unit.advance_machine(machine, Unwanted("nothing runs here and the server stops"))
    return len(machines)
