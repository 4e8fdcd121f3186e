"""Read the scheduler's state: the first of each queue, what backends offer, and what is in use on each node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, and_, bindparam, func, or_, select

from crucible.backends.base import Backend
from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.jobs import bulk_views
from crucible.control.machines.machine_factory import SHARED_OWNER
from crucible.control.reconcile import codec
from crucible.control.scheduling.backends import ConnectedBackends
from crucible.control.scheduling.offers import OfferBook
from crucible.control.scheduling.queue import backends_of_queue, first_in_queue, list_queues
from crucible.core.compute.offers import Nodes, ProviderQueue
from crucible.core.ids import short
from crucible.core.lifecycle import Machine, MachineState, Reason, World
from crucible.core.lifecycle.machines import MAKING
from crucible.core.scheduling.slots import UsedSlots
from crucible.core.scheduling.state import Failures, OfferKind, State, Supply, WaitingJob

MAX_CONSIDERED = 64
"""Maximum number of jobs of a queue in one round, so that a long queue delays no other."""
FAILURE_SECONDS = 1800.0
"""Time for which an offer that failed a job ranks behind others."""
FIRST_PAUSE = 2.0
"""Seconds until a kind of offer that failed a job once may be tried again; doubles with each further failure."""

_PAUSED = frozenset({Reason.REFUSED, Reason.NOT_BEGUN, Reason.WITHDRAWN})
"""Ends of an attempt after which its kind of offer is not tried again at once."""
_RANKED = _PAUSED | {Reason.INTERRUPTED}
"""Ends of an attempt after which other kinds of offers are better."""

_m, _s = t.machines.c, t.slots.c
_ALIVE = [state.value for state in MachineState if state is not MachineState.GONE]
_HOLDS_NODE = and_(_m.state.in_(_ALIVE), or_(_m.node != "", _m.backend.in_(bindparam("backends", expanding=True))))
"""A machine on a node; of `backends`, also one that was made before nodes were recorded."""
_ON_NODES = Statement(
    select(_m.node, _m.backend, _s.allocation, t.attempts.c.job)
    .select_from(t.machines)
    .join(t.slots, _s.machine == _m.id)
    .join(t.attempts, t.attempts.c.id == _s.attempt)
    .where(_HOLDS_NODE, or_(_s.ended.is_(False), _m.owner.not_like(f"{SHARED_OWNER}%")))
)
"""The slots in use on nodes. A machine made for one attempt holds them until it is gone."""
_ENDING = Statement(
    select(_m.node, _m.backend).where(
        _HOLDS_NODE, _m.state == MachineState.RELEASING.value, _m.owner.like(f"{SHARED_OWNER}%")
    )
)
_QUEUED = Statement(
    select(_m.backend, func.count().label("machines"))
    .where(_m.state.in_([state.value for state in MAKING]))
    .where(_m.backend.in_(bindparam("backends", expanding=True)), _m.started_at.is_(None))
    .group_by(_m.backend)
)


class StateReader:
    def __init__(self, backends: ConnectedBackends, offers: OfferBook) -> None:
        self._backends = backends
        self._offers = offers

    def read(self, conn: Connection, now: float) -> State:
        """Return the state with the first jobs of each queue that has a connected backend."""
        connected = set(self._backends.names())
        ids = {
            job
            for queue in list_queues(conn)
            if not connected.isdisjoint(backends_of_queue(queue))
            for job in first_in_queue(conn, queue, MAX_CONSIDERED, now)
        }
        worlds = bulk_views.load_worlds(conn, sorted(ids))
        return self.of_jobs(conn, [worlds[job] for job in sorted(ids) if job in worlds], now)

    def of_jobs(self, conn: Connection, worlds: Iterable[World], now: float) -> State:
        """Return the state with these jobs alone."""
        jobs = tuple(waiting_job(world, now) for world in worlds)
        names = dict.fromkeys(candidate.backend for job in jobs for candidate in job.candidates)
        connected = self._backends.all()
        backends = {name: connected[name] for name in names if name in connected}
        ending = self.ending_nodes(conn)
        queued = self._count_queued(conn, backends)
        supplies = {
            name: self._supply(backend, queued.get(name, 0), frozenset(ending.get(name, ())))
            for name, backend in backends.items()
        }
        return State(jobs, supplies, self.used_slots(conn), now)

    def used_slots(self, conn: Connection) -> dict[str, tuple[UsedSlots, ...]]:
        """Return the slots in use, by node."""
        used: dict[str, list[UsedSlots]] = {}
        for row in _ON_NODES.all(conn, backends=self._with_nodes()):
            slots = UsedSlots(short(row["job"]), codec.parse_allocation(row["allocation"]))
            for node in self._nodes_of(row["node"], row["backend"]):
                used.setdefault(node, []).append(slots)
        return {node: tuple(slots) for node, slots in used.items()}

    def ending_nodes(self, conn: Connection) -> dict[str, set[str]]:
        """Return, by backend, the nodes on which a shared machine is ending, which may still hold all of its slots."""
        ending: dict[str, set[str]] = {}
        for row in _ENDING.all(conn, backends=self._with_nodes()):
            ending.setdefault(row["backend"], set()).update(self._nodes_of(row["node"], row["backend"]))
        return ending

    def _with_nodes(self) -> list[str]:
        """Return the backends that have nodes."""
        found = self._backends.all().items()
        return sorted(name for name, backend in found if isinstance(backend.capabilities.capacity, Nodes))

    def _nodes_of(self, node: str, backend: str) -> list[str]:
        """Return the node of a machine. One that was made before nodes were recorded counts on all of its backend."""
        return [node] if node else self._offers.nodes(backend)

    def _supply(self, backend: Backend, queued: int, ending: frozenset[str]) -> Supply:
        plain, secret = (self._backends.rejection(backend.name, secrets=secrets) for secrets in (False, True))
        return Supply(
            capacity=backend.capabilities.capacity,
            offers=self._offers.by_need(backend.name),
            unanswered=self._offers.unanswered(backend.name),
            queued=queued,
            ending=ending,
            unreachable=str(plain or ""),
            unreachable_with_secrets=str(secret or ""),
            in_place=backend.capabilities.in_place,
            may_see_paths=backend.capabilities.reach.may_see_paths,
        )

    def may_queue(self, conn: Connection, name: str) -> bool:
        """Return whether another machine of ours may wait in this provider's queue, if it has one."""
        backend = self._backends.get(name)
        capacity = backend.capabilities.capacity
        if not isinstance(capacity, ProviderQueue):
            return True
        return self._count_queued(conn, {name: backend}).get(name, 0) < capacity.limit

    def _count_queued(self, conn: Connection, backends: Mapping[str, Backend]) -> dict[str, int]:
        names = [n for n, backend in backends.items() if isinstance(backend.capabilities.capacity, ProviderQueue)]
        return {row["backend"]: row["machines"] for row in _QUEUED.all(conn, backends=names)} if names else {}


def waiting_job(world: World, now: float) -> WaitingJob:
    """Return the job as the scheduler needs it."""
    job = world.job
    recent = [attempt for attempt in world.attempts if (attempt.ended_at or now) > now - FAILURE_SECONDS]
    lost: dict[str, int] = {}
    failed: dict[OfferKind, list[float | None]] = {}
    for attempt in recent:
        reopened = attempt.number <= job.attempts_before_reopen  # the user wants it now, and on the first backend again
        if attempt.reason is not None and attempt.reason.moves_on and not reopened:
            lost[attempt.backend] = lost.get(attempt.backend, 0) + 1
        if attempt.reason in _RANKED:
            pauses = attempt.reason in _PAUSED and not reopened
            for kind in {_kind(world.machines[s.machine]) for s in attempt.slots if s.machine in world.machines}:
                failed.setdefault(kind, []).append(attempt.ended_at if pauses else None)
    longest = job.spec.retries.wait_seconds
    return WaitingJob(
        id=job.id,
        version=job.version,
        spec=job.spec.model_copy(update={"resources": job.resources}),
        candidates=job.candidates,
        user=job.user,
        waiting=job.waiting,
        ranks=job.spec.nodes,
        failures={kind: _failures(ends, longest) for kind, ends in failed.items()},
        lost=lost,
    )


def _failures(ends: list[float | None], longest: float) -> Failures:
    """Return how often a kind failed. `ends`: when each attempt failed; None if that asks for no pause."""
    refused = [at for at in ends if at is not None]
    if not refused:
        return Failures(len(ends))
    pause = min(FIRST_PAUSE * 2.0 ** min(len(refused) - 1, 16), longest)
    return Failures(len(ends), max(refused) + pause)


def _kind(machine: Machine) -> OfferKind:
    return OfferKind(machine.backend, machine.region, machine.instance_type, machine.market)
