"""Pools: machines that wait for work of anyone's. This computer is the first of them."""

from __future__ import annotations

from sqlalchemy import select

from crucible.control.db import schema as t
from crucible.control.reconcile import codec
from crucible.control.reconcile.unit_of_work import UnitOfWork
from crucible.control.upkeep import restore_hold
from crucible.core.lifecycle import MachineState
from crucible.core.lifecycle.facts import Unwanted

_HELD = (MachineState.CREATING.value, MachineState.UP.value)


def release_idle_pools(unit: UnitOfWork) -> int:
    """Releases every pool machine that no attempt occupies; how many. After a restore: only newer ones."""
    certain = t.machines.c.created_at >= (restore_hold.unconfirmed_since(unit.conn) or 0.0)
    busy = select(t.slots.c.machine).where(t.slots.c.ended.is_(False))
    c = t.machines.c
    idle = select(t.machines).where(c.owner.startswith("pool:"), c.state.in_(_HELD), c.id.not_in(busy), certain)
    machines = [codec.machine_from_row(row) for row in unit.conn.execute(idle).mappings().all()]
    for machine in machines:
        unit.advance_machine(machine, Unwanted("nothing runs here and the server stops"))
    return len(machines)
