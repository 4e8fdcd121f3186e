"""The scheduler: gives waiting jobs their slots, inside the transaction that freed or filled the queue.

Whatever makes room (a job ends) or asks for it (a job is submitted) calls `place` in its own unit, so that
submit-to-launch is one commit when a slot is free; the sweep calls it for whatever was missed.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from sqlalchemy import select

from crucible.backends.base import MachineOrder, Slots
from crucible.control import codec, repository
from crucible.control.db import schema as t
from crucible.control.places import Place, Places
from crucible.control.ports import Ids
from crucible.control.roles import Duties, Duty
from crucible.control.unit import Unit
from crucible.core import scheduling
from crucible.core.ids import Prefix, short
from crucible.core.lifecycle import Attempt, JobState, Machine, MachineState, Slot, World
from crucible.core.lifecycle.facts import Placed, Waits
from crucible.core.resources import Allocation, Resources, format_memory

LOOK_AHEAD = 64
"""Queued jobs of a place considered in one pass; the rest keep their place behind them."""

_USABLE = (MachineState.INTENDED.value, MachineState.CREATING.value, MachineState.UP.value)


class Scheduler:
    def __init__(self, places: Places, ids: Ids, deployment: str, duties: Duties) -> None:
        self._places = places
        self._ids = ids
        self._deployment = deployment
        self._duties = duties

    def place(self, unit: Unit) -> None:
        """Places what fits, first in first out, and notes why the first that does not must wait.

        Only the process that has the scheduler's duty decides; for any other this does nothing.
        """
        queue = self._queue(unit)
        if not queue or not self._duties.holds(unit.conn, Duty.SCHEDULER):
            return
        machines = {name: self._machine(unit, name) for name in {w.backend for w in queue}}
        counted = [self._counted(unit, name, machine) for name, machine in machines.items()]
        for decision in scheduling.place_fifo(queue, [place for place in counted if place]):
            world = repository.load_world(unit.conn, decision.job)
            if world is None:
                continue
            if decision.allocation is None:
                unit.advance(world, Waits(decision.why))
            else:
                machines[decision.backend] = self._give(
                    unit, world, decision.backend, decision.allocation, machines[decision.backend]
                )

    def _queue(self, unit: Unit) -> list[scheduling.Waiting]:
        """The first in line of every place: a long queue at one keeps no other from its turn."""
        return [waiting for backend in self._places.names() for waiting in _line(unit, backend)]

    def _machine(self, unit: Unit, backend: str) -> Machine | None:
        """The shared machine of a counted place, if there is one."""
        c = t.machines.c
        row = (
            unit.conn.execute(
                select(t.machines).where(c.backend == backend, c.owner == f"pool:{backend}", c.state.in_(_USABLE))
            )
            .mappings()
            .first()
        )
        return codec.machine_of(row) if row else None

    def _counted(self, unit: Unit, backend: str, machine: Machine | None) -> scheduling.Place | None:
        place = self._places.place(backend)
        if place is None or place.backend.capabilities.slots is not Slots.COUNTED:
            return None
        if machine is None:
            return None if self._leaving(unit, backend) else scheduling.Place(backend, None, place.offer.capacity)
        return scheduling.Place(backend, machine.id, machine.capacity, self._taken(unit, machine.id))

    def _leaving(self, unit: Unit, backend: str) -> bool:
        """A released machine still holds its slots until its place says it is gone."""
        c = t.machines.c
        held = select(c.id).where(c.backend == backend, c.state == MachineState.RELEASING.value).limit(1)
        return unit.conn.execute(held).first() is not None

    def _taken(self, unit: Unit, machine: str) -> tuple[scheduling.Taken, ...]:
        rows = unit.conn.execute(
            select(t.slots.c.allocation, t.attempts.c.job)
            .join(t.attempts, t.attempts.c.id == t.slots.c.attempt)
            .where(t.slots.c.machine == machine, t.slots.c.ended.is_(False))
        )
        return tuple(scheduling.Taken(short(r.job), Allocation.model_validate_json(r.allocation)) for r in rows.all())

    def _give(self, unit: Unit, world: World, backend: str, allocation: Allocation, machine: Machine | None) -> Machine:
        new = machine is None
        place = self._places.place(backend)
        assert place is not None, "a decision is only made for a place that is ready"
        chosen = machine or self._intend(unit, place)
        attempt = Attempt(
            id=self._ids.new(Prefix.ATTEMPT),
            job=world.job.id,
            number=world.job.attempts + 1,
            generation=world.job.generation,
            backend=backend,
            slots=(Slot(0, chosen.id, allocation),),
            placed_at=unit.now,
        )
        known = world if new else world.with_machine(chosen)
        after = unit.advance(known, Placed(attempt, chosen, _why(world, place), new))
        return after.machines.get(chosen.id, chosen)

    def _intend(self, unit: Unit, place: Place) -> Machine:
        """The machine that will be wanted, with the exact call that makes it."""
        name = place.backend.name
        machine = self._ids.new(Prefix.MACHINE)
        call = place.backend.call(MachineOrder(machine, self._deployment, place.offer))
        abilities = place.backend.capabilities
        return Machine(
            id=machine,
            backend=name,
            owner=f"pool:{name}",
            call=json.dumps(asdict(call), sort_keys=True),
            rate=place.offer.rate,
            billing=place.offer.billing,
            bills=abilities.bills,
            created_at=unit.now,
            launch_deadline=unit.now + abilities.launch_deadline + abilities.settle_window,
            settle_window=abilities.settle_window,
            capacity=place.offer.capacity,
            instance_type=place.offer.instance_type,
            region=place.offer.region,
        )


def _line(unit: Unit, backend: str) -> list[scheduling.Waiting]:
    c = t.jobs.c
    ready = (c.state == JobState.QUEUED.value, c.backend == backend, c.not_before <= unit.now)
    query = select(c.id, c.resources).where(*ready).order_by(c.id).limit(LOOK_AHEAD)
    rows = unit.conn.execute(query).all()
    return [scheduling.Waiting(r.id, backend, Resources.model_validate_json(r.resources)) for r in rows]


def _why(world: World, place: Place) -> str:
    """Where it runs and why there, in words."""
    offer, spec = place.offer, world.job.spec
    size = f"{offer.capacity.cpus:g} CPUs, {format_memory(offer.capacity.memory_bytes)}"
    if offer.capacity.gpus:
        size += f", {len(offer.capacity.gpus)} x {offer.capacity.gpu_name or 'GPU'}"
    price = "free" if not offer.rate else f"${offer.rate / 1e6:.3f}/h"
    because = "you asked for it" if spec.backend else "it is free and it fits"
    return f"{offer.backend} ({offer.instance_type}: {size}, {price}) because {because}"
