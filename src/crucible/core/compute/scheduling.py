"""Place waiting jobs into free slots, first in, first out for each backend.

Pure: takes the queue and the free slots, and returns a decision for each job it considered. A job that does not fit
makes the later ones of the same backend wait too, so that small jobs never starve a large one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from crucible.core.compute.resources import Allocation, Capacity, Resources, format_memory


@dataclass(frozen=True)
class QueuedJob:
    """The placement-relevant part of a waiting job. `resources` are the effective ones."""

    job: str
    backend: str
    resources: Resources
    user: str = ""
    priority: int = 0


@dataclass(frozen=True)
class UsedSlots:
    """Slots that an attempt occupies; `holder` is the short id of its job."""

    holder: str
    allocation: Allocation


@dataclass(frozen=True)
class SlotPool:
    """The capacity of a backend with slots, and who holds them. `machine` is None before the first one is made."""

    backend: str
    machine: str | None
    capacity: Capacity
    used: tuple[UsedSlots, ...] = ()

    @property
    def free(self) -> Capacity:
        held = [t.allocation for t in self.used]
        used_gpus = {gpu for a in held for gpu in a.gpus}
        return self.capacity.model_copy(
            update={
                "cpus": self.capacity.cpus - sum(a.cpus for a in held),
                "memory_bytes": self.capacity.memory_bytes - sum(a.memory_bytes for a in held),
                "gpus": tuple(g for g in self.capacity.gpus if g not in used_gpus),
            }
        )


@dataclass(frozen=True)
class Decision:
    """`allocation` is None if the job waits; `why` explains. `never`: it can never fit there."""

    job: str
    backend: str
    allocation: Allocation | None
    why: str
    never: bool = False


def by_priority(queue: Sequence[QueuedJob]) -> list[QueuedJob]:
    """Return the queue with each user's positions reassigned to their jobs by priority, then by arrival.

    Only jobs of one user trade positions, across projects: the turns of other users do not change.
    """
    own: dict[str, list[QueuedJob]] = {}
    for queued in queue:
        own.setdefault(queued.user, []).append(queued)
    turns = {user: iter(sorted(jobs, key=lambda queued: -queued.priority)) for user, jobs in own.items()}
    return [next(turns[queued.user]) for queued in queue]


def place_fifo(queue: Iterable[QueuedJob], pools: Sequence[SlotPool]) -> list[Decision]:
    """Return the decisions in the order of the queue: placements, and for each pool the first job that has to wait."""
    open_pools = {pool.backend: pool for pool in pools}
    decisions = []
    for queued in queue:
        pool = open_pools.get(queued.backend)
        if pool is None:
            continue
        never = why_never(queued.resources, pool.capacity)
        if never:
            decisions.append(Decision(queued.job, queued.backend, None, never, never=True))
            continue
        allocation = allocate(queued.resources, pool)
        if allocation is None:
            decisions.append(Decision(queued.job, queued.backend, None, why_full(queued.resources, pool)))
            del open_pools[queued.backend]
            continue
        decisions.append(Decision(queued.job, queued.backend, allocation, ""))
        used = (*pool.used, UsedSlots(queued.job, allocation))
        open_pools[queued.backend] = replace(pool, used=used)
    return decisions


def allocate(need: Resources, pool: SlotPool) -> Allocation | None:
    """Return slots for this need, or None if they are not free now."""
    (cpus, memory, gpus), free = demand(need, pool.capacity), pool.free
    if cpus > free.cpus + 1e-9 or memory > free.memory_bytes or gpus > len(free.gpus):
        return None
    return Allocation(cpus=cpus, memory_bytes=memory, gpus=free.gpus[:gpus])


def demand(need: Resources, capacity: Capacity) -> tuple[float, int, int]:
    """Return the CPUs, bytes of memory and number of GPUs that a need takes on a machine of this capacity.

    A job without a size takes the whole machine.
    """
    if need.whole_machine:
        return capacity.cpus, capacity.memory_bytes, need.gpus or len(capacity.gpus)
    cpus = need.cpus if need.cpus is not None else min(1.0, capacity.cpus)
    memory = need.memory_bytes
    if memory is None:
        memory = int(capacity.memory_bytes * min(cpus / capacity.cpus, 1.0))
    return cpus, memory, need.gpus


def why_never(need: Resources, capacity: Capacity, name: str = "this computer") -> str:
    """Return why such a machine could never hold this; empty if it could."""
    lacks = list(_lacks(need, capacity))
    if not lacks:
        return ""
    requested, available = zip(*lacks, strict=True)
    return f"asks for {' and '.join(requested)}; {name} has {' and '.join(available)}"


def _lacks(need: Resources, has: Capacity) -> Iterator[tuple[str, str]]:
    """Yield the requested and the available amount of each resource of which there is too little."""
    if need.cpus is not None and need.cpus > has.cpus:
        yield _count(need.cpus, "CPU"), f"{has.cpus:g}"
    if need.memory_bytes is not None and need.memory_bytes > has.memory_bytes:
        yield f"{format_memory(need.memory_bytes)} of memory", format_memory(has.memory_bytes)
    if need.gpus > len(has.gpus):
        yield _count(need.gpus, "GPU"), f"{len(has.gpus) or 'none'}"
    elif need.gpus and 0 < has.gpu_memory_bytes < (need.gpu_memory_bytes or 0):
        wanted = format_memory(need.gpu_memory_bytes or 0)
        yield f"GPUs with {wanted}", f"{format_memory(has.gpu_memory_bytes)} on each"


def why_full(need: Resources, pool: SlotPool) -> str:
    """Return which slots are missing and who holds them."""
    holders = ", ".join(sorted({t.holder for t in pool.used})) or "nobody"
    if need.whole_machine:
        return f"wants the whole computer, which {holders} uses now; with --cpus or --tier it could run beside"
    (cpus, memory, gpus), free = demand(need, pool.capacity), pool.free
    if gpus > len(free.gpus):
        return f"waits for {_count(gpus, 'GPU')}: {len(free.gpus)} free, held by {holders}"
    if cpus > free.cpus:
        return f"waits for {cpus:g} CPUs: {max(free.cpus, 0):g} free, held by {holders}"
    return f"waits for {format_memory(memory)} of memory: held by {holders}"


def _count(number: float, noun: str) -> str:
    return f"{number:g} {noun}{'' if number == 1 else 's'}"
