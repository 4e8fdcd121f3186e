"""The scheduler: read the state, decide off the database's writer, and carry out each decision by itself.

A decision is carried out on the condition that the job has not changed and the slots are still free. A submission that
fits a free node at once, with nobody ahead of it there, is placed in its own transaction by the same function.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Connection, bindparam, select

from crucible.control.db import schema as t
from crucible.control.db.clock import database_now
from crucible.control.db.statement import Statement
from crucible.control.machines.machine_factory import SHARED_OWNER, MachineFactory, placement_reason
from crucible.control.objects import checkpoints
from crucible.control.reconcile import codec, repository
from crucible.control.reconcile.crashpoints import crashpoint
from crucible.control.reconcile.duties import Duties, Duty
from crucible.control.reconcile.unit_of_work import UnitOfWork, Writer
from crucible.control.runtime.ports import Ports
from crucible.control.scheduling.backends import ConnectedBackends
from crucible.control.scheduling.offers import OfferBook
from crucible.control.scheduling.queue import backends_of_queue, first_in_queue, list_queues
from crucible.control.scheduling.state_reader import StateReader, waiting_job
from crucible.control.upkeep import restore_hold
from crucible.core.compute.offers import Need, Nodes, Offer
from crucible.core.lifecycle import Machine, Reason, World
from crucible.core.lifecycle.facts import NothingSaved, Placed, Waits
from crucible.core.lifecycle.values import USABLE
from crucible.core.scheduling.candidates import backends_of
from crucible.core.scheduling.schedule import schedule, why_not_connected
from crucible.core.scheduling.slots import NodeSlots, allocate
from crucible.core.scheduling.state import Failures, Grant, OfferKind, Start, State, Wait

LANE = "scheduling"
SECONDS = 20.0
IDLE_SECONDS = 5.0
"""Longest time between two rounds while jobs wait, if nothing wakes the scheduler."""

_NO_FAILURES = Failures(0)
_USABLE = tuple(sorted(state.value for state in USABLE))
_m = t.machines.c
_SHARED = Statement(
    select(t.machines).where(
        _m.backend == bindparam("backend"),
        _m.node == bindparam("node"),
        _m.owner == bindparam("owner"),
        _m.state.in_(_USABLE),
    )
)

_WAITING = Statement(select(t.jobs.c.waiting).where(t.jobs.c.id == bindparam("job")))


class Scheduler:
    def __init__(
        self,
        ports: Ports,
        writer: Writer,
        backends: ConnectedBackends,
        offers: OfferBook,
        duties: Duties,
        factory: MachineFactory,
    ) -> None:
        self._ports = ports
        self._writer = writer
        self._backends = backends
        self._offers = offers
        self._duties = duties
        self._factory = factory
        self._reader = StateReader(backends, offers)
        self._one_round = asyncio.Lock()

    async def round(self) -> float:
        """Decide for the queued jobs, and carry out the decisions. Return the seconds until the next round is due.

        Does nothing in a process that does not hold the scheduler's duty.
        """
        if not self._duties.has(Duty.SCHEDULER):
            return IDLE_SECONDS
        async with self._one_round:
            state, stranded = await self._ports.db.read(self._read)
            if stranded:
                await self._writer.write(lambda unit: _record_waits(unit, stranded))
            self._offers.fetch_in_background((one.backend, job.need) for job in state.jobs for one in job.candidates)
            decisions = await self._ports.calls.run(LANE, lambda: schedule(state), SECONDS) if state.jobs else []
            shown = {job.id: job.waiting for job in state.jobs}
            for decision in decisions:
                if isinstance(decision, Start) or decision.why != shown[decision.job]:
                    await self._carry_out(decision)
            until = [one.until - state.now for one in decisions if isinstance(one, Wait) and one.until is not None]
            return min([IDLE_SECONDS, *(max(seconds, 0.0) for seconds in until)])

    def place_at_once(self, unit: UnitOfWork, job: str) -> None:
        """Start the job if it fits now and nobody is ahead of it on a node that it could use; else say why it waits.

        The round does the rest.
        """
        world = _load_queued(unit, job)
        if world is None or not restore_hold.may_launch(unit.conn, self._backends.names()):
            return
        if not self._may_be_placed_at_once(unit, world):
            return
        for decision in schedule(self._reader.of_jobs(unit.conn, [world], unit.now)):
            self._apply(unit, world, decision)

    def has_room_elsewhere(self, unit: UnitOfWork, world: World, backend: str) -> bool:
        """Return whether the job, which waits in the queue of this provider, would start on another backend now.

        An offer that refused the job lately does not count, nor do nodes for which other jobs wait.
        """
        if not restore_hold.may_launch(unit.conn, self._backends.names()):
            return False
        others = tuple(
            candidate
            for candidate in world.job.candidates
            if candidate.backend != backend and not self._are_others_ahead(unit, world, {candidate.backend})
        )
        elsewhere = world.with_job(candidates=others)
        failures = waiting_job(elsewhere, unit.now).failures
        return any(
            isinstance(decision, Start)
            and all(
                failures.get(OfferKind.from_offer(grant.offer), _NO_FAILURES).retry_at == 0 for grant in decision.grants
            )
            for decision in schedule(self._reader.of_jobs(unit.conn, [elsewhere], unit.now))
        )

    def offers_elsewhere(self, world: World, backend: str, now: float) -> set[tuple[str, Need]]:
        """Return what has to be asked for `has_room_elsewhere`: backends, each with the job's need."""
        need = waiting_job(world, now).need
        return {(name, need) for name in backends_of(world.job.candidates) if name != backend}

    def _may_be_placed_at_once(self, unit: UnitOfWork, world: World) -> bool:
        """Return whether all its backends have reported offers, and no other job waits for their nodes."""
        need = waiting_job(world, unit.now).need
        names = [name for name in backends_of(world.job.candidates) if self._backends.has(name)]
        if not names or any(self._offers.get(name, need) is None for name in names):
            return False
        return not self._are_others_ahead(unit, world, names)

    def _are_others_ahead(self, unit: UnitOfWork, world: World, names: Iterable[str]) -> bool:
        """Return whether another job waits for the nodes of these backends."""
        connected = [name for name in names if self._backends.has(name)]
        nodes = {n for n in connected if isinstance(self._backends.get(n).capabilities.capacity, Nodes)}
        return bool(nodes) and self._anybody_waits(unit.conn, self._with_nodes_of(nodes), world.job.id, unit.now)

    def _with_nodes_of(self, backends: set[str]) -> set[str]:
        """Return the backends that reach a node of one of these, which includes themselves."""
        wanted = {node for name in backends for node in self._offers.nodes(name)}
        return backends | {name for name in self._backends.names() if not wanted.isdisjoint(self._offers.nodes(name))}

    def _anybody_waits(self, conn: Connection, backends: set[str], besides: str, now: float) -> bool:
        """Return whether another job that is ready waits for one of these backends."""
        queues = [queue for queue in list_queues(conn) if not backends.isdisjoint(backends_of_queue(queue))]
        return any(job != besides for queue in queues for job in first_in_queue(conn, queue, 2, now))

    def _read(self, conn: Connection) -> tuple[State, dict[str, str]]:
        """Return the state, and why jobs wait that are not decided on: the first of queues that cannot move.

        The state has no jobs while nothing may be launched after a restore.
        """
        if not restore_hold.may_launch(conn, self._backends.names()):
            why = f"{restore_hold.WHY} {restore_hold.FIX}"
            return State((), {}), {job: why for queue in list_queues(conn) for job in first_in_queue(conn, queue, 1)}
        return self._reader.read(conn, database_now(conn, self._ports.clock.now)), self._unconnected(conn)

    def _unconnected(self, conn: Connection) -> dict[str, str]:
        """Return what the first job of each queue without a connected backend waits for, if it does not say so yet.

        Another server may be connected to that backend.
        """
        connected, found = set(self._backends.names()), dict[str, str]()
        for queue in list_queues(conn):
            names = backends_of_queue(queue)
            if connected.isdisjoint(names):
                first = first_in_queue(conn, queue, 1)
                found |= {job: why_not_connected(names) for job in first if not _WAITING.value(conn, job=job)}
        return found

    async def _carry_out(self, decision: Start | Wait) -> None:
        def apply(unit: UnitOfWork) -> None:
            if not self._duties.holds(unit.conn, Duty.SCHEDULER):
                return
            world = _load_queued(unit, decision.job)
            if world is not None and world.job.version == decision.version:
                self._apply(unit, world, decision)

        crashpoint("schedule.decided")
        await self._writer.write(apply)

    def _apply(self, unit: UnitOfWork, world: World, decision: Start | Wait) -> None:
        if isinstance(decision, Wait):
            unit.advance(world, Waits(decision.why))
        elif all(self._is_free(unit.conn, world, grant) for grant in decision.grants):
            self._start(unit, world, decision)

    def _is_free(self, conn: Connection, world: World, grant: Grant) -> bool:
        """Return whether the slots are still free, or the machine may still join its provider's queue."""
        name, node = grant.offer.backend, grant.offer.node
        if not self._backends.has(name):
            return False
        if node is None:
            return self._reader.may_queue(conn, name)
        if node.id in self._reader.ending_nodes(conn).get(name, ()):
            return False
        slots = NodeSlots.from_offer(grant.offer, node, self._reader.used_slots(conn).get(node.id, ()))
        return allocate(world.job.resources, slots) == grant.allocation

    def _start(self, unit: UnitOfWork, world: World, start: Start) -> None:
        attempt_id = self._factory.attempt_id()
        made = self._machines(unit, world, attempt_id, start.grants)
        machines = [machine for machine, _ in made]
        attempt = self._factory.attempt(world, attempt_id, machines, start.grants, unit.now)
        resume_from = checkpoints.next_start(unit.conn, world)
        if resume_from is not None:
            attempt = replace(attempt, resume_from=resume_from)
        new = frozenset(machine.id for machine, is_new in made if is_new)
        why = placement_reason(world, start.grants[0].offer)
        for machine, is_new in made:
            world = world if is_new else world.with_machine(machine)
        unit.advance(world, Placed(attempt, tuple(machines), why, new, start.passed_over))

    def _machines(
        self, unit: UnitOfWork, world: World, attempt: str, grants: Sequence[Grant]
    ) -> list[tuple[Machine, bool]]:
        """Return a machine for each rank, and whether it has to be launched."""
        if not self._backends.get(grants[0].offer.backend).capabilities.shares_machines:
            return [(machine, True) for machine in self._factory.own_machines(world, attempt, grants, unit.now)]
        found = [(self._shared_machine(unit, grant.offer), grant.offer) for grant in grants]
        return [(known or self._factory.shared_machine(offer, unit.now), known is None) for known, offer in found]

    def _shared_machine(self, unit: UnitOfWork, offer: Offer) -> Machine | None:
        """Return the machine on the offer's node that attempts share; None if there is none yet."""
        assert offer.node is not None, "machines are shared on nodes"
        owner = f"{SHARED_OWNER}{offer.backend}"
        for node in (offer.node.id, ""):  # empty: made before nodes were recorded
            row = _SHARED.first(unit.conn, backend=offer.backend, node=node, owner=owner)
            if row is not None:
                return codec.machine_from_row(row)
        return None


def _record_waits(unit: UnitOfWork, reasons: Mapping[str, str]) -> None:
    for job, why in reasons.items():
        unit.record_wait(job, why)


def _load_queued(unit: UnitOfWork, job: str) -> World | None:
    """Return the job, or None if there is none to place.

    A job ends here if its last attempt used up the life of its machine and saved nothing new: it would repeat forever.
    """
    world = repository.load_world(unit.conn, job)
    if world is None or not _was_suspended(world):
        return world
    if world.attempts[-1].resume_from != checkpoints.next_start(unit.conn, world):
        return world
    unit.advance(world, NothingSaved())
    return None


def _was_suspended(world: World) -> bool:
    """Return whether the last attempt was suspended, unless the job was reopened after it."""
    return any(
        a.reason is Reason.SUSPENDED and a.number > world.job.attempts_before_reopen for a in world.attempts[-1:]
    )
