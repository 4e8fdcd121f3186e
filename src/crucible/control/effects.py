"""Effects: what was decided is done outside, once the decision is durable.

Effects of one machine are performed in the order they were wanted, each under a claim that outlasts the
call's deadline. A call without an answer is never assumed to have failed: the machine is looked for by its
token before anything else. A termination that fails is tried again for ever, with growing waits.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog
from sqlalchemy import ColumnElement, Select, and_, exists, or_, select, update

from crucible.backends import base
from crucible.control import repository
from crucible.control.crashpoints import crashpoint
from crucible.control.db import schema as t
from crucible.control.places import Places
from crucible.control.ports import Ports
from crucible.control.unit import Unit, Writer
from crucible.core.errors import CrucibleError, TimedOut
from crucible.core.lifecycle import EffectKind, Machine, MachineState
from crucible.core.lifecycle import facts as f
from crucible.wire.messages import derive_secret

T = TypeVar("T")

log = structlog.get_logger(__name__)

CALL_DEADLINE = 30.0
CLAIM_SECONDS = CALL_DEADLINE * 2
FIRST_WAIT = 0.5
LONGEST_WAIT = 60.0


@dataclass(frozen=True)
class Claimed:
    """`tries` counts the claims before this one: 0 means that the call has certainly never been made."""

    id: int
    kind: EffectKind
    tries: int
    machine: Machine


@dataclass(frozen=True)
class Bearings:
    """Where agents find us, and the key their secrets are derived from."""

    key: bytes
    agents_url: str


class Performer:
    def __init__(self, ports: Ports, places: Places, writer: Writer, bearings: Bearings) -> None:
        self._ports = ports
        self._places = places
        self._writer = writer
        self._bearings = bearings

    async def perform_due(self) -> int:
        """Performs one effect of every machine that has one due; how many it tried.

        They go on beside each other: a place that hangs, or a backend that breaks, delays no other's.
        """
        claimed = await self._writer.write(self._claim)
        outcomes = await asyncio.gather(*map(self._perform, claimed), return_exceptions=True)
        for broken in filter(None, outcomes):
            raise broken
        return len(claimed)

    async def next_due(self) -> float | None:
        """When the next effect may be tried: after its wait, its claim and all before it of its machine."""
        c = t.effects.c
        query = select(c.not_before, c.claimed_until).where(c.done.is_(False), _first())
        rows = await self._ports.db.read(lambda conn: conn.execute(query).all())
        return min((max(row.not_before, row.claimed_until or 0.0) for row in rows), default=None)

    def _claim(self, unit: Unit) -> list[Claimed]:
        rows = unit.conn.execute(_due(unit.now)).all()
        ids = [row.id for row in rows]
        if ids:
            hold = {
                "claimed_by": self._ports.worker,
                "claimed_until": unit.now + CLAIM_SECONDS,
                "tries": t.effects.c.tries + 1,
            }
            unit.conn.execute(update(t.effects).where(t.effects.c.id.in_(ids)).values(hold))
        machines = repository.load_machines(unit.conn, {row.machine for row in rows})
        return [
            self._claimed(unit, row.id, EffectKind(row.kind), row.tries, machines[row.machine])
            for row in rows
        ]

    def _claimed(self, unit: Unit, id: int, kind: EffectKind, tries: int, machine: Machine) -> Claimed:
        """A launch that will be sent may take effect for a while: that is stored before it is sent."""
        if kind is EffectKind.LAUNCH and machine.wanted and machine.backend in self._places.names():
            abilities = self._places.backend(machine.backend).capabilities
            until = unit.now + CLAIM_SECONDS + abilities.settle_window
            machine = unit.advance_machine(machine, f.LaunchSent(until))
        return Claimed(id, kind, tries, machine)

    async def _perform(self, effect: Claimed) -> None:
        crashpoint("effect.claimed")
        try:
            if effect.kind is EffectKind.LAUNCH:
                await self._launch(effect)
            else:
                await self._terminate(effect)
        except CrucibleError as error:
            log.warning(
                "effect failed", effect=effect.kind.value, machine=effect.machine.id, error=str(error)
            )
            await self._later(effect, str(error))

    async def _launch(self, effect: Claimed) -> None:
        machine = effect.machine
        backend = self._places.backend(machine.backend)
        call = base.LaunchCall(**json.loads(machine.call))
        if machine.state in (MachineState.RELEASING, MachineState.GONE):
            return await self._look_for(effect, backend, call.token)
        if effect.tries:
            found = await self._call(backend, lambda: backend.find(call.token))
            if found is not None and machine.up_at is None:
                return await self._answered(effect, f.LaunchAnswered(found.native_id))
        nonce = derive_secret(self._bearings.key, "nonce", machine.id).decode()
        bootstrap = base.Bootstrap(nonce, self._bearings.agents_url)
        crashpoint("launch.before_call")
        try:
            ref = await self._call(backend, lambda: backend.launch(call, bootstrap))
        except base.LaunchRefused as refused:
            return await self._answered(effect, f.LaunchRefused(str(refused)))
        except (base.LaunchUnknown, TimedOut) as unknown:
            await self._note(effect, f.LaunchLost(str(unknown)))
            return await self._later(effect, str(unknown))
        crashpoint("launch.after_call")
        await self._answered(effect, f.LaunchAnswered(ref.native_id))
        crashpoint("launch.recorded")

    async def _look_for(self, effect: Claimed, backend: base.Backend, token: str) -> None:
        """The launch is not wanted any more: nothing is sent, but what an earlier call made is found."""
        machine = effect.machine
        if machine.native_id is not None or not machine.alive:
            return await self._answered(effect)
        if not effect.tries:
            return await self._answered(effect, f.LaunchRefused("cancelled before it was launched"))
        found = await self._call(backend, lambda: backend.find(token))
        native_id = found.native_id if found else machine.claimed_by
        if native_id is not None:
            return await self._answered(effect, f.LaunchAnswered(native_id))
        machine = await self._note(effect, f.FoundNothing())
        if machine.state is MachineState.GONE:
            return await self._answered(effect)
        await self._later(effect, "no machine found yet")

    async def _terminate(self, effect: Claimed) -> None:
        machine = effect.machine
        if not machine.alive or machine.native_id is None:
            return await self._answered(effect)
        backend = self._places.backend(machine.backend)
        ref = base.MachineRef(machine.backend, machine.id, machine.native_id, machine.region)
        crashpoint("terminate.before_call")
        await self._call(backend, lambda: backend.terminate(ref))
        crashpoint("terminate.after_call")
        seen = await self._call(backend, lambda: backend.poll([ref]))
        if any(o.seen not in (base.Seen.GONE, base.Seen.INTERRUPTED) for o in seen):
            return await self._later(effect, "still there")
        await self._answered(effect, *(f.SeenGone() for _ in range(2)))

    async def _call(self, backend: base.Backend, work: Callable[[], T]) -> T:
        return await self._ports.calls.run(backend.name, work, CALL_DEADLINE)

    async def _answered(self, effect: Claimed, *facts: f.MachineFact) -> None:
        """Records the answer and that the effect is done, in one commit."""

        def record(unit: Unit) -> None:
            self._apply(unit, effect, facts)
            unit.conn.execute(
                update(t.effects)
                .where(t.effects.c.id == effect.id)
                .values(done=True, claimed_until=None, error=None)
            )
            unit.changes.effects = True

        await self._writer.write(record)

    async def _note(self, effect: Claimed, fact: f.MachineFact) -> Machine:
        return await self._writer.write(lambda unit: self._apply(unit, effect, (fact,)))

    def _apply(self, unit: Unit, effect: Claimed, facts: tuple[f.MachineFact, ...]) -> Machine:
        machine = repository.load_machine(unit.conn, effect.machine.id)
        assert machine is not None, "machines are never deleted"
        return unit.advance_machine(machine, *facts)

    async def _later(self, effect: Claimed, why: str) -> None:
        wait = min(FIRST_WAIT * 2.0 ** min(effect.tries, 10), LONGEST_WAIT) * self._ports.random.uniform(
            0.8, 1.2
        )
        values = {"error": why, "claimed_until": None, "not_before": self._ports.clock.now() + wait}
        query = update(t.effects).where(t.effects.c.id == effect.id).values(values)
        await self._ports.db.write(lambda conn: conn.execute(query).rowcount)
        self._ports.wakeups.wake("effects")


def _due(now: float) -> Select[tuple[int, str, int, str]]:
    """The oldest open effect of each machine, if it may be tried now and nobody holds it."""
    free = or_(t.effects.c.claimed_until.is_(None), t.effects.c.claimed_until <= now)
    c = t.effects.c
    return select(c.id, c.kind, c.tries, c.machine).where(
        c.done.is_(False), c.not_before <= now, free, _first()
    )


def _first() -> ColumnElement[bool]:
    """No older effect of its machine is open."""
    older = t.effects.alias("older")
    return ~exists().where(
        and_(older.c.machine == t.effects.c.machine, older.c.done.is_(False), older.c.id < t.effects.c.id)
    )
