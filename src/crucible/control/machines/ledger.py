"""Replace our own count of a machine's billed time by the provider's, if the provider has a meter."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import structlog
from sqlalchemy import bindparam, delete, select, update

from crucible.backends.base import MachineRef, Metered, Meters
from crucible.control.db import schema as t
from crucible.control.db.statement import Statement, insert_row
from crucible.control.jobs import bulk_views
from crucible.control.reconcile import codec
from crucible.control.reconcile.duties import Duties, Duty
from crucible.control.reconcile.unit_of_work import UnitOfWork, Writer
from crucible.control.runtime.ports import Ports
from crucible.control.scheduling.backends import ConnectedBackends
from crucible.core.compute.pricing import Segment
from crucible.core.errors import CrucibleError
from crucible.core.lifecycle import Machine, MachineState

log = structlog.get_logger(__name__)

METER_DEADLINE = 30.0
FINAL_AFTER = 60.0
"""Seconds after a machine's end until its bill counts as complete."""
BATCH = 200

_c = t.machines.c
_OPEN = _c.metered.is_(False)
"""Bills that may change, also of machines without a native id: a launch without a response may have made one."""
_UNSETTLED = Statement(
    select(t.machines)
    .where(_c.backend == bindparam("backend"), _c.id > bindparam("after"), _OPEN)
    .order_by(_c.id)
    .limit(BATCH)
)
_STILL_OPEN = Statement(select(t.machines).where(_c.id.in_(bindparam("machines", expanding=True)), _OPEN))
_CLOSE = Statement(update(t.machines).where(_c.id == bindparam("machine")).values(metered=True))
_DELETE = Statement(delete(t.price_segments).where(t.price_segments.c.machine == bindparam("machine")))
_ADD = Statement(insert_row(t.price_segments, ["machine", "n", "starts_at", "ends_at", "rate", "native_id"]))


class Ledger:
    def __init__(self, ports: Ports, backends: ConnectedBackends, writer: Writer, duties: Duties) -> None:
        self._ports = ports
        self._backends = backends
        self._writer = writer
        self._duties = duties

    async def round(self) -> None:
        """Read the meters of all providers concurrently. A failure of one does not stop the others."""
        await asyncio.gather(*map(self._read_meter, self._backends.names()))

    async def _read_meter(self, name: str) -> None:
        backend = self._backends.get(name)
        if not isinstance(backend, Meters):
            return
        after = ""
        try:
            while machines := await self._load_unsettled(name, after):
                after = machines[-1].id
                await self._settle(backend, machines)
        except CrucibleError as error:
            log.warning("the meter cannot be read", backend=name, error=str(error))

    async def _settle(self, backend: Meters, machines: Sequence[Machine]) -> None:
        name, ids = machines[0].backend, [machine.id for machine in machines]
        refs = [MachineRef(name, m.id, m.native_id or "", m.region) for m in machines]
        asked_at = self._ports.clock.now()
        metered = await self._ports.calls.run(name, lambda: backend.metered(refs), METER_DEADLINE)
        await self._writer.write(lambda unit: self._record(unit, ids, metered, asked_at))

    async def _load_unsettled(self, backend: str, after: str) -> list[Machine]:
        rows = await self._ports.db.read(lambda conn: _UNSETTLED.all(conn, backend=backend, after=after))
        return [codec.machine_from_row(row) for row in rows]

    def _record(self, unit: UnitOfWork, ids: Sequence[str], metered: Sequence[Metered], asked_at: float) -> None:
        """Store the readings, if this process has the duty, except for closed bills."""
        if not self._duties.holds(unit.conn, Duty.POLLER):
            return
        machines = [codec.machine_from_row(row) for row in _STILL_OPEN.all(unit.conn, machines=ids)]
        _write_segments(unit, machines, metered, asked_at)


def _write_segments(unit: UnitOfWork, machines: Sequence[Machine], metered: Sequence[Metered], asked_at: float) -> None:
    by_machine: dict[str, list[Metered]] = {}
    for entry in metered:
        by_machine.setdefault(entry.ref.machine, []).append(entry)
    known = bulk_views.price_segments(unit.conn, [machine.id for machine in machines])
    for machine in machines:
        entries, before = by_machine.get(machine.id, []), known.get(machine.id, [])
        after = _merge(before, entries, asked_at) if entries else before
        if _is_final(machine, entries, asked_at):
            after = [_close_segment(segment, machine.gone_at or asked_at) for segment in after]
            _CLOSE.run(unit.conn, machine=machine.id)
        if after != before:
            _replace(unit, machine.id, after)


def _merge(known: Sequence[Segment], entries: Sequence[Metered], asked_at: float) -> list[Segment]:
    """Return the provider's segments, and those of instances that it no longer lists, which have ended.

    Our own count is dropped as soon as the provider lists any instance.
    """
    listed = {entry.ref.native_id for entry in entries}
    ended = [_close_segment(each, asked_at) for each in known if each.instance and each.instance not in listed]
    return ended + [replace(each, instance=entry.ref.native_id) for entry in entries for each in entry.segments]


def _close_segment(segment: Segment, at: float) -> Segment:
    return replace(segment, ends_at=at) if segment.ends_at is None else segment


def _replace(unit: UnitOfWork, machine: str, segments: Sequence[Segment]) -> None:
    _DELETE.run(unit.conn, machine=machine)
    rows = [
        {
            "machine": machine,
            "n": n,
            "starts_at": each.starts_at,
            "ends_at": each.ends_at,
            "rate": each.rate,
            "native_id": each.instance,
        }
        for n, each in enumerate(segments)
    ]
    _ADD.run_each(unit.conn, rows)


def _is_final(machine: Machine, entries: Sequence[Metered], asked_at: float) -> bool:
    """Return whether the bill was final when it was read: the machine gone for a while, and no instance running."""
    ended = machine.state is MachineState.GONE and asked_at >= (machine.gone_at or asked_at) + FINAL_AFTER
    return ended and all(s.ends_at is not None for e in entries for s in e.segments)
