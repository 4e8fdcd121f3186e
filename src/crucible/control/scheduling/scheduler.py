"""The scheduler, which places queued jobs on slots and machines.

Code that frees slots (a job ends) or needs them (a job is submitted) calls `place` in its own unit of work, so that a
submission commits together with its launch if a slot is free. The sweep calls it for anything missed. Counted backends
are filled slot by slot; elastic ones launch a machine for each job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import bindparam, func, select

from crucible.backends.base import Slots
from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.machines.machine_factory import LeaseTerms, MachineFactory, placement_reason
from crucible.control.objects import checkpoints
from crucible.control.reconcile import codec, repository
from crucible.control.reconcile.roles import Duties, Duty
from crucible.control.reconcile.unit_of_work import UnitOfWork
from crucible.control.runtime.ports import Ids
from crucible.control.scheduling.backends import BackendOffer, ConnectedBackends
from crucible.control.scheduling.queue import first_in_queue
from crucible.control.upkeep import restore_hold
from crucible.core.compute import offer_choice, scheduling
from crucible.core.compute.offers import Market
from crucible.core.compute.resources import Allocation
from crucible.core.ids import short
from crucible.core.job.spec import JobSpec
from crucible.core.lifecycle import Attempt, Machine, MachineState, Reason, World
from crucible.core.lifecycle.facts import MovedOn, NothingSaved, Placed, Waits

MAX_CONSIDERED = 64
"""Maximum number of queued jobs of a backend in one pass, so that a long queue delays no other backend."""

FAILURE_SECONDS = 1800.0
"""Time for which a kind of machine that failed a job ranks behind others."""

_FAILURES = frozenset({Reason.REFUSED, Reason.NOT_BEGUN, Reason.INTERRUPTED})
_USABLE = (MachineState.INTENDED.value, MachineState.CREATING.value, MachineState.UP.value)

_j, _m, _s = t.jobs.c, t.machines.c, t.slots.c
_NEXT_BACKEND = Statement(select(func.min(_j.backend)).where(t.QUEUED, _j.backend > bindparam("after")))
"""The next backend, by name, with a queued job: one index lookup, however long the queues are."""
_FIRST_QUEUED = Statement(select(_j.id).where(t.QUEUED, _j.backend == bindparam("backend")).order_by(_j.id).limit(1))
_SHARED = Statement(
    select(t.machines).where(_m.backend == bindparam("backend"), _m.owner == bindparam("owner"), _m.state.in_(_USABLE))
)
_RELEASING = Statement(
    select(_m.id).where(_m.backend == bindparam("backend"), _m.state == MachineState.RELEASING.value).limit(1)
)
_USED_SLOTS = Statement(
    select(_s.allocation, t.attempts.c.job)
    .join(t.attempts, t.attempts.c.id == _s.attempt)
    .where(_s.machine == bindparam("machine"), _s.ended.is_(False))
)


class Scheduler:
    def __init__(
        self, backends: ConnectedBackends, ids: Ids, deployment: str, duties: Duties, terms: LeaseTerms
    ) -> None:
        self._backends = backends
        self._duties = duties
        self._factory = MachineFactory(ids, deployment, terms)

    def place(self, unit: UnitOfWork) -> None:
        """Place the queued jobs that fit, in the order of the queue. Store why a job that does not fit has to wait.

        Does nothing in a process that does not hold the scheduler's duty.
        """
        queued, connected = _queued_backends(unit), self._backends.names()
        ready = {
            name: first_in_queue(unit.conn, name, MAX_CONSIDERED, unit.now) for name in queued if name in connected
        }
        lines = {name: line for name, line in ready.items() if line}
        _note_unconnected(unit, [name for name in queued if name not in connected])
        if not lines or not self._duties.holds(unit.conn, Duty.SCHEDULER):
            return
        if not restore_hold.may_launch(unit.conn, self._backends.names()):
            return _wait_for_confirmation(unit, lines)
        lines = {name: self._without_unreachable(unit, name, line) for name, line in lines.items()}
        counted = {name for name in lines if self._slots(name) is Slots.COUNTED}
        self._place_counted(unit, {name: lines[name] for name in counted})
        for name in sorted(lines.keys() - counted):
            for waiting in lines[name]:
                self._place_elastic(unit, waiting)

    def _slots(self, name: str) -> Slots:
        return self._backends.get(name).capabilities.slots

    def _without_unreachable(
        self, unit: UnitOfWork, name: str, line: list[scheduling.QueuedJob]
    ) -> list[scheduling.QueuedJob]:
        """Return the queue without jobs whose agents cannot reach this server; those move on or wait."""
        if self._backends.rejection(name, secrets=True) is None:
            return line
        reachable = []
        for waiting in line:
            world = _load_queued(unit, waiting.job)
            if world is None:
                continue
            rejected = self._backends.rejection(name, secrets=bool(world.job.spec.secrets))
            if rejected is None:
                reachable.append(waiting)
            else:
                self._move_or_wait(unit, world, str(rejected))
        return reachable

    # Counted backends

    def _place_counted(self, unit: UnitOfWork, lines: dict[str, list[scheduling.QueuedJob]]) -> None:
        machines = {name: self._shared_machine(unit, name) for name in lines}
        pools = [self._free_slots(unit, name, machine) for name, machine in machines.items()]
        queue = [waiting for line in lines.values() for waiting in line]
        for decision in scheduling.place_fifo(queue, [pool for pool in pools if pool]):
            world = _load_queued(unit, decision.job)
            if world is None:
                continue
            if decision.never:
                self._move_or_wait(unit, world, decision.why)
            elif decision.allocation is None:
                unit.advance(world, Waits(decision.why))
            else:
                machines[decision.backend] = self._place_on_shared(
                    unit, world, decision.backend, decision.allocation, machines[decision.backend]
                )

    def _shared_machine(self, unit: UnitOfWork, backend: str) -> Machine | None:
        """Return the shared machine of a counted backend, or None."""
        row = _SHARED.first(unit.conn, backend=backend, owner=f"pool:{backend}")
        return codec.machine_from_row(row) if row else None

    def _free_slots(self, unit: UnitOfWork, backend: str, machine: Machine | None) -> scheduling.SlotPool | None:
        """Return the slots of a counted backend; None while no job can be placed there."""
        target = self._backends.runnable_offer(backend)
        if target is None:
            return None
        if machine is None:
            if self._is_releasing(unit, backend):
                return None
            return scheduling.SlotPool(backend, None, target.offer.capacity)
        return scheduling.SlotPool(backend, machine.id, machine.capacity, self._used_slots(unit, machine.id))

    def _is_releasing(self, unit: UnitOfWork, backend: str) -> bool:
        """Return whether a machine being released may still hold the slots, because it is not known to be gone."""
        return _RELEASING.value(unit.conn, backend=backend) is not None

    def _used_slots(self, unit: UnitOfWork, machine: str) -> tuple[scheduling.UsedSlots, ...]:
        rows = _USED_SLOTS.all(unit.conn, machine=machine)
        return tuple(scheduling.UsedSlots(short(r["job"]), codec.parse_allocation(r["allocation"])) for r in rows)

    def _place_on_shared(
        self, unit: UnitOfWork, world: World, backend: str, allocation: Allocation, machine: Machine | None
    ) -> Machine:
        target = self._backends.runnable_offer(backend)
        assert target is not None, "a decision is only made for a backend with a runnable offer"
        shared = machine or self._factory.shared_machine(target, unit.now)
        attempt = self._factory.attempt(world, self._factory.attempt_id(), shared, allocation, unit.now)
        known = world if machine is None else world.with_machine(shared)
        return self._commit(unit, known, attempt, shared, target, new=machine is None)

    # Elastic backends

    def _place_elastic(self, unit: UnitOfWork, waiting: scheduling.QueuedJob) -> None:
        world = _load_queued(unit, waiting.job)
        if world is None:
            return
        choice = self._choose(unit, world, waiting)
        if choice.offer is None:
            return
        target = BackendOffer(self._backends.get(waiting.backend), choice.offer)
        attempt_id = self._factory.attempt_id()
        slots = offer_choice.allocate_whole_machine(_sized_spec(world), choice.offer)
        machine = self._factory.dedicated_machine(target, attempt_id, world, unit.now)
        attempt = self._factory.attempt(world, attempt_id, machine, slots, unit.now)
        self._commit(unit, world, attempt, machine, target, new=True)

    def _choose(self, unit: UnitOfWork, world: World, waiting: scheduling.QueuedJob) -> offer_choice.Choice:
        """Return the offer to try now. If there is none, move the job to its next backend, or store why it waits."""
        here, spec = waiting.backend, _sized_spec(world)
        if not self._backends.has_answered(here):
            return self._wait(unit, world, f"{here} has not reported its offers yet")
        offers, failures = self._backends.offers(here), _recent_failures(world, here, unit.now)
        choice = offer_choice.choose_offer(spec, offers, failures)
        if choice.offer is not None and not choice.all_failed_before:
            return choice
        next_backend = self._next_backend(world, here)
        if next_backend is not None:
            unit.advance(world, MovedOn(next_backend, f"{here}: {choice.why}"))
            return offer_choice.Choice(None)
        fallback = choice
        if choice.offer is None and spec.market is Market.SPOT:
            fallback = offer_choice.choose_offer(spec.model_copy(update={"market": Market.ON_DEMAND}), offers, failures)
        return fallback if fallback.offer else self._wait(unit, world, f"waits for a machine on {here}: {choice.why}")

    def _wait(self, unit: UnitOfWork, world: World, why: str) -> offer_choice.Choice:
        unit.advance(world, Waits(why))
        return offer_choice.Choice(None, why)

    def _next_backend(self, world: World, here: str) -> str | None:
        """Return the next of the job's backends that could hold it, or None."""
        order = world.job.spec.backends
        later = order[order.index(here) + 1 :] if here in order else ()
        return next((name for name in later if self._may_hold(name, world)), None)

    def _move_or_wait(self, unit: UnitOfWork, world: World, why: str) -> None:
        """Move the job from a backend that can never hold it to another of its backends that can, or let it wait."""
        others = (name for name in world.job.spec.backends if name != world.job.backend)
        other = next((name for name in others if self._may_hold(name, world)), None)
        unit.advance(world, Waits(why) if other is None else MovedOn(other, f"{world.job.backend}: {why}"))

    def _may_hold(self, name: str, world: World) -> bool:
        return self._backends.may_hold(name, world.job.spec, world.job.resources)

    def _commit(
        self, unit: UnitOfWork, world: World, attempt: Attempt, machine: Machine, offer: BackendOffer, *, new: bool
    ) -> Machine:
        start = checkpoints.next_start(unit.conn, world)
        if start is not None:
            attempt = replace(attempt, resume_from=start)
        after = unit.advance(world, Placed(attempt, machine, placement_reason(world, offer), new))
        return after.machines.get(machine.id, machine)


def _sized_spec(world: World) -> JobSpec:
    """Return the job's spec with its effective resources."""
    return world.job.spec.model_copy(update={"resources": world.job.resources})


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


def _wait_for_confirmation(unit: UnitOfWork, lines: dict[str, list[scheduling.QueuedJob]]) -> None:
    """Place nothing, and store why with the first job of every queue."""
    for line in lines.values():
        world = repository.load_world(unit.conn, line[0].job)
        if world is not None:
            unit.advance(world, Waits(f"{restore_hold.WHY} {restore_hold.FIX}"))


def _queued_backends(unit: UnitOfWork) -> list[str]:
    """Return the backends that have queued jobs, sorted by name."""
    names: list[str] = []
    while (name := _NEXT_BACKEND.value(unit.conn, after=names[-1] if names else "")) is not None:
        names.append(name)
    return names


def _note_unconnected(unit: UnitOfWork, backends: Sequence[str]) -> None:
    """Store with the first job queued for an unconnected backend that it waits. Another server may have the backend."""
    for backend in backends:
        first = _FIRST_QUEUED.value(unit.conn, backend=backend)
        world = None if first is None else repository.load_world(unit.conn, first)
        if world is not None and not world.job.waiting:
            unit.advance(world, Waits(f"waits for {world.job.backend}, which is not connected"))


def _recent_failures(world: World, backend: str, now: float) -> Mapping[offer_choice.OfferKind, int]:
    """Return how often each kind of machine there recently failed the job: refused, never started or interrupted."""
    recent = [a for a in world.attempts if a.backend == backend and (a.ended_at or now) > now - FAILURE_SECONDS]
    failed = [a for a in recent if a.reason in _FAILURES]
    machines = [world.machines[s.machine] for a in failed for s in a.slots if s.machine in world.machines]
    return Counter((m.region, m.instance_type, m.market) for m in machines)
