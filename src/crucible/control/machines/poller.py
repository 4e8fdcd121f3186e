"""Ask each provider about our machines, and apply its answers to their rows.

A provider's answer is a fact like any other. A machine counts as gone only after two answers that agree. A failure of
one backend never stops the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet

import structlog
from sqlalchemy import select

from crucible.backends.base import MachineRef, Observation, Seen
from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.reconcile import codec, repository
from crucible.control.reconcile.unit_of_work import UnitOfWork, Writer
from crucible.control.runtime.ports import Ports
from crucible.control.scheduling.backends import ConnectedBackends
from crucible.core.errors import CrucibleError
from crucible.core.lifecycle import Machine, MachineState
from crucible.core.lifecycle import facts as f

log = structlog.get_logger(__name__)

POLL_DEADLINE = 20.0
_ALIVE = Statement(select(t.machines).where(t.machines.c.state != MachineState.GONE.value))


class MissingSince:
    """The time since which this process has not seen each machine in the provider's answers, on a monotonic clock.

    The wall clock may be set between two answers, which would then seem further apart than they are, and an answer may
    be older than a new machine. Answers to another process, or to this one before a restart, do not count.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def seconds_missing(self, machine: Machine, asked: float, answered: float) -> float:
        """Return the seconds from the first answer without the machine to this question; both monotonic."""
        if not machine.gone_sightings:
            # It was seen in between, maybe by another process, so the earlier time does not count.
            self._since.pop(machine.id, None)
        return max(0.0, asked - self._since.setdefault(machine.id, answered))

    def drop_if_gone(self, machine: Machine) -> None:
        """Forget a machine whose row says that it is gone."""
        if not machine.alive:
            self._since.pop(machine.id, None)

    def keep_only(self, machines: AbstractSet[str]) -> None:
        """Forget all machines but these."""
        # A copy of the keys, because transactions in other threads add some meanwhile.
        for machine in self._since.keys() - machines:
            self._since.pop(machine, None)


class Poller:
    def __init__(self, ports: Ports, backends: ConnectedBackends, writer: Writer, missing_since: MissingSince) -> None:
        self._ports = ports
        self._backends = backends
        self._writer = writer
        self._missing_since = missing_since

    async def poll(self) -> None:
        """Poll every machine that is not gone, on all backends concurrently."""
        alive = await self._load_alive()
        await asyncio.gather(*(self._poll(backend, machines) for backend, machines in alive.items()))

    async def _poll(self, backend: str, machines: list[Machine]) -> None:
        try:
            await self._poll_backend(backend, machines)
        except CrucibleError as error:
            log.warning("poll failed", backend=backend, error=str(error))

    async def _load_alive(self) -> dict[str, list[Machine]]:
        rows = await self._ports.db.read(_ALIVE.all)
        found: dict[str, list[Machine]] = {}
        machines = [codec.machine_from_row(row) for row in rows]
        self._missing_since.keep_only({machine.id for machine in machines})
        for machine in machines:
            if machine.native_id is not None and self._backends.has(machine.backend):
                found.setdefault(machine.backend, []).append(machine)
        return found

    async def _poll_backend(self, name: str, machines: list[Machine]) -> None:
        backend = self._backends.get(name)
        refs = [MachineRef(name, m.id, m.native_id or "", m.region) for m in machines]
        asked = self._ports.clock.steady()
        seen = await self._ports.calls.run(name, lambda: backend.poll(refs), POLL_DEADLINE)
        answered, known = self._ports.clock.steady(), {m.id: m for m in machines}
        for observation in seen:
            machine = known.get(observation.ref.machine)
            if machine is not None and _is_news(machine, observation):
                await self._writer.write(lambda unit, o=observation: self._apply(unit, o, asked, answered))  # type: ignore[misc]

    def _apply(self, unit: UnitOfWork, observation: Observation, asked: float, answered: float) -> None:
        machine = repository.load_machine(unit.conn, observation.ref.machine)
        if machine is None:
            return
        gone = observation.seen in (Seen.GONE, Seen.INTERRUPTED)
        fact = _to_fact(observation, self._missing_since.seconds_missing(machine, asked, answered) if gone else 0.0)
        if fact is not None:
            self._missing_since.drop_if_gone(unit.advance_machine(machine, fact))


def _to_fact(observation: Observation, absent_for: float) -> f.MachineFact | None:
    match observation.seen:
        case Seen.QUEUED:
            return f.SeenQueued(observation.detail)
        case Seen.UP | Seen.STARTING:
            return f.SeenUp(observation.started_at)
        case Seen.HALTED:
            return f.SeenHalted(observation.started_at)
        case Seen.GONE | Seen.INTERRUPTED:
            interrupted = observation.seen is Seen.INTERRUPTED
            return f.SeenGone(interrupted, observation.detail, absent_for, observation.started_at)
        case Seen.UNREACHABLE:
            return None


def _is_news(machine: Machine, observation: Observation) -> bool:
    """Return whether the row would change; most polls find what is already known."""
    match observation.seen:
        case Seen.QUEUED:
            waits = machine.state is MachineState.QUEUED and machine.detail == observation.detail
            return machine.gone_sightings > 0 or (machine.started_at is None and not waits)
        case Seen.UP | Seen.STARTING:
            return machine.gone_sightings > 0 or _starts_earlier(machine, observation.started_at)
        case _:
            return observation.seen is not Seen.UNREACHABLE


def _starts_earlier(machine: Machine, reported: float | None) -> bool:
    """Return whether this start of the machine, or the first sign of it, moves its clocks."""
    if machine.started_at is None:
        return True
    return reported is not None and machine.created_at <= reported < machine.started_at
