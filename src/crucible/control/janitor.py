"""The janitor: compares what our places hold with what we know of.

Known and unwanted: released again, for as long as it takes. Unknown to us: left alone and reported; only a
person decides to end something that is not ours.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog
from sqlalchemy import select

from crucible.backends.base import MachineRef
from crucible.control import repository
from crucible.control.db import schema as t
from crucible.control.places import Places
from crucible.control.ports import Ports
from crucible.control.unit import Unit, Writer
from crucible.core.errors import CrucibleError
from crucible.core.lifecycle import Effect, EffectKind, Machine, MachineState

log = structlog.get_logger(__name__)

LIST_DEADLINE = 30.0


@dataclass(frozen=True)
class Findings:
    """`strangers` carry our tag but have no row; `leftovers` are gone by their row, or doubles."""

    strangers: tuple[MachineRef, ...] = ()
    leftovers: tuple[MachineRef, ...] = ()


class Janitor:
    def __init__(self, ports: Ports, places: Places, writer: Writer, deployment: str) -> None:
        self._ports = ports
        self._places = places
        self._writer = writer
        self._deployment = deployment

    async def tidy(self) -> Findings:
        """One round over every place, all at once."""
        found = await asyncio.gather(*map(self._tidy, self._places.names()))
        strangers = tuple(ref for findings in found for ref in findings.strangers)
        return Findings(strangers, tuple(ref for findings in found for ref in findings.leftovers))

    async def _tidy(self, name: str) -> Findings:
        strangers: list[MachineRef] = []
        leftovers: list[MachineRef] = []
        try:
            for ref in await self._owned(name):
                await self._judge(ref, strangers, leftovers)
        except CrucibleError as error:
            log.warning("listing machines failed", backend=name, error=str(error))
        return Findings(tuple(strangers), tuple(leftovers))

    async def _owned(self, name: str) -> list[MachineRef]:
        backend = self._places.backend(name)
        return list(await self._ports.calls.run(name, lambda: backend.owned(self._deployment), LIST_DEADLINE))

    async def _judge(self, ref: MachineRef, strangers: list[MachineRef], leftovers: list[MachineRef]) -> None:
        machine = await self._ports.db.read(lambda conn: repository.load_machine(conn, ref.machine))
        if machine is None:
            strangers.append(ref)
            log.error("a machine with our tag is unknown to us", machine=ref.machine, native_id=ref.native_id)
        elif _left_over(machine, ref):
            leftovers.append(ref)
            await self._end(ref)

    async def _end(self, ref: MachineRef) -> None:
        """The place still shows what has no use: end it directly; the row stays as it is."""
        log.warning("ending what is left of a machine", machine=ref.machine, native_id=ref.native_id)
        backend = self._places.backend(ref.backend)
        try:
            await self._ports.calls.run(ref.backend, lambda: backend.terminate(ref), LIST_DEADLINE)
        except CrucibleError as error:
            log.warning("it does not end yet", machine=ref.machine, error=str(error))

    async def release_stuck(self) -> None:
        """Every machine that is being released has an open termination."""

        def ensure(unit: Unit) -> None:
            open_ends = select(t.effects.c.machine).where(
                t.effects.c.done.is_(False), t.effects.c.kind == EffectKind.TERMINATE.value
            )
            stuck = select(t.machines.c.id).where(
                t.machines.c.state == MachineState.RELEASING.value, t.machines.c.id.not_in(open_ends)
            )
            wanted = [Effect(EffectKind.TERMINATE, row.id) for row in unit.conn.execute(stuck).all()]
            repository.add_effects(unit.conn, wanted, unit.now)
            unit.changes.effects |= bool(wanted)

        await self._writer.write(ensure)


def _left_over(machine: Machine, ref: MachineRef) -> bool:
    """Gone by our books; or a double: our token made two, and another one has proven to be the machine."""
    double = machine.claimed_by is not None and machine.claimed_by != ref.native_id
    return machine.state is MachineState.GONE or double
