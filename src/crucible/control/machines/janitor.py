"""Compare the machines that providers list with the database, and end leftovers.

Known machines that are no longer wanted are terminated repeatedly until they are gone. Unknown machines are only
reported, because they may not be ours: a person has to decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from sqlalchemy import select

from crucible.backends.base import Backend, MachineRef, PartlyUnreachable, end_only
from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.machines.machine_factory import SHARED_OWNER
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

_HELD = (MachineState.CREATING.value, MachineState.QUEUED.value, MachineState.UP.value)

_ENDING = select(t.effects.c.machine).where(t.effects.c.done.is_(False), t.effects.c.kind == EffectKind.TERMINATE.value)
_STUCK = Statement(
    select(t.machines.c.id).where(t.machines.c.state == MachineState.RELEASING.value, t.machines.c.id.not_in(_ENDING))
)


@dataclass(frozen=True)
class JanitorReport:
    """Machines without a use.

    `unknown` ones have our tag but no row. `leftovers` are gone according to their row. `duplicates` are instances of a
    machine that another instance has claimed, because the provider ignored the idempotency token of the launch.
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
        self._idle: frozenset[tuple[str, int]] = frozenset()
        """Shared machines on other computers that were idle at the last call of `release_idle`, each with the version
        of its document."""

    async def tidy(self) -> JanitorReport:
        """Inspect all backends concurrently, end leftovers and duplicates, and log unknown machines."""
        report = await self.inspect()
        for ref in report.unknown:
            log.error("a machine with our tag is unknown to us", machine=ref.machine, native_id=ref.native_id)
        for ref in (*report.leftovers, *report.duplicates):
            await self._end(ref)
        return report

    async def inspect(self) -> JanitorReport:
        """Return the listed machines without a use. Ends nothing."""
        reports = await asyncio.gather(*map(self._inspect, self._backends.names()))
        return JanitorReport(
            unknown=tuple(ref for report in reports for ref in report.unknown),
            leftovers=tuple(ref for report in reports for ref in report.leftovers),
            duplicates=tuple(ref for report in reports for ref in report.duplicates),
        )

    async def _inspect(self, name: str) -> JanitorReport:
        try:
            refs, complete = await self._list_owned(name)
            listed = [(ref, await self._load_machine(ref)) for ref in refs]
            unknown = tuple(ref for ref, machine in listed if machine is None)
            if complete or unknown:
                await self._record_listing(name, clear=not unknown)
        except CrucibleError as error:
            log.warning("listing machines failed", backend=name, error=str(error))
            return JanitorReport()
        known = [(ref, machine) for ref, machine in listed if machine is not None]
        leftovers = tuple(ref for ref, machine in known if not machine.alive)
        return JanitorReport(unknown, leftovers, tuple(ref for ref, machine in known if _is_duplicate(machine, ref)))

    async def _list_owned(self, name: str) -> tuple[Sequence[MachineRef], bool]:
        """Return the machines that the backend lists, and whether these are all."""
        backend = self._backends.get(name)
        try:
            return await self._ports.calls.run(name, lambda: backend.owned(self._deployment), LIST_DEADLINE), True
        except PartlyUnreachable as error:
            log.warning("not all machines could be listed", backend=name, error=str(error))
            return error.found, False

    async def _load_machine(self, ref: MachineRef) -> Machine | None:
        return await self._ports.db.read(lambda conn: repository.load_machine(conn, ref.machine))

    async def _record_listing(self, name: str, *, clear: bool) -> None:
        """After a restore, record whether all listed machines are known. Jobs wait until they are for all backends."""
        if await self._ports.db.read(restore_hold.is_held):
            now, window = self._ports.clock.now(), self._backends.get(name).capabilities.settle_window
            await self._ports.db.write(
                lambda conn: restore_hold.record_scan(conn, name, now, strangers=not clear, settle_window=window)
            )

    async def _end(self, ref: MachineRef) -> None:
        """End an instance directly, without changing the machine's row, which is right already."""
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
        """Add a termination for every machine that is being released and has no open one."""

        def ensure(unit: UnitOfWork) -> None:
            wanted = [Effect(EffectKind.TERMINATE, machine) for machine in _STUCK.column(unit.conn)]
            repository.add_effects(unit.conn, wanted, unit.now)
            unit.changes.effects |= bool(wanted)

        await self._writer.write(ensure)

    async def release_idle(self) -> None:
        """Release shared machines on other computers that had no attempt since the last call."""
        names = [name for name in self._backends.names() if _is_on_other_computers(self._backends.get(name))]
        if not names:
            return

        def release(unit: UnitOfWork) -> frozenset[tuple[str, int]]:
            idle = [(machine, version) for machine, version in _list_idle(unit) if machine.backend in names]
            for machine, version in idle:
                if (machine.id, version) in self._idle:
                    unit.advance_machine(machine, Unwanted("nothing runs here"))
            return frozenset((machine.id, version) for machine, version in idle)

        self._idle = await self._writer.write(release)


def _is_on_other_computers(backend: Backend) -> bool:
    """Return whether the backend shares machines that are not on the server's computer."""
    return backend.capabilities.shares_machines and not backend.capabilities.reach.is_here


def _is_duplicate(machine: Machine, ref: MachineRef) -> bool:
    """Return whether the machine was claimed by another instance than this one."""
    return machine.alive and machine.claimed_by is not None and machine.claimed_by != ref.native_id


def release_idle_machines(unit: UnitOfWork, backend: str | None = None) -> int:
    """Release every shared machine (of this backend) without an attempt. Return their number.

    While a restore is unconfirmed, only those that were made after it.
    """
    idle = [machine for machine, _ in _list_idle(unit) if backend in (None, machine.backend)]
    why = "the server stops" if backend is None else f"{backend} is being disconnected"
    for machine in idle:
        unit.advance_machine(machine, Unwanted(f"nothing runs here and {why}"))
    return len(idle)


def _list_idle(unit: UnitOfWork) -> list[tuple[Machine, int]]:
    """Return the shared machines without an attempt, each with the version of its document.

    While a restore is unconfirmed, only those that were made after it.
    """
    c = t.machines.c
    certain = c.created_at >= (restore_hold.unconfirmed_since(unit.conn) or 0.0)
    busy = select(t.slots.c.machine).where(t.slots.c.ended.is_(False))
    idle = select(t.machines).where(c.owner.startswith(SHARED_OWNER), c.state.in_(_HELD), c.id.not_in(busy), certain)
    rows = unit.conn.execute(idle).mappings().all()
    return [(codec.machine_from_row(row), int(row["desired_version"])) for row in rows]
