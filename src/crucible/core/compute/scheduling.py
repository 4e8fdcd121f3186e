"""Placement: which waiting job gets which slots. First in, first out, per place.

Pure: takes the queue and what is free, returns one decision per job it looked at. A job that does not fit
makes the later ones of the same place wait too, so a large job is never starved by small ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from crucible.core.compute.resources import Allocation, Capacity, Resources, format_memory


@dataclass(frozen=True)
class QueuedJob:
    """What of a waiting job decides its placement: its effective resources. The queue holds them in order."""

    job: str
    backend: str
    resources: Resources
    owner: tuple[str, str] = ("", "")
    """Project and user."""
    priority: int = 0


@dataclass(frozen=True)
class UsedSlots:
    """Slots that an attempt occupies; `holder` is how people call its job."""

    holder: str
    allocation: Allocation


@dataclass(frozen=True)
class SlotPool:
    """A counted place: its whole capacity and who holds what."""

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
    """`allocation` is None when the job waits; `why` explains. `never`: it can never be held there."""

    job: str
    backend: str
    allocation: Allocation | None
    why: str
    never: bool = False


def by_priority(queue: Sequence[QueuedJob]) -> list[QueuedJob]:
    """Give each owner's positions in the queue to their jobs by priority, then by arrival; others keep theirs."""
    own: dict[tuple[str, str], list[QueuedJob]] = {}
    for queued in queue:
        own.setdefault(queued.owner, []).append(queued)
    turns = {owner: iter(sorted(jobs, key=lambda queued: -queued.priority)) for owner, jobs in own.items()}
    return [next(turns[queued.owner]) for queued in queue]


def place_fifo(queue: Iterable[QueuedJob], places: Sequence[SlotPool]) -> list[Decision]:
    """Decisions in the order of the queue: placements, and for each place the first job that has to wait."""
    open_places = {place.backend: place for place in places}
    decisions = []
    for queued in queue:
        place = open_places.get(queued.backend)
        if place is None:
            continue
        never = why_never(queued.resources, place.capacity)
        if never:
            decisions.append(Decision(queued.job, queued.backend, None, never, never=True))
            continue
        allocation = allocate(queued.resources, place)
        if allocation is None:
            decisions.append(Decision(queued.job, queued.backend, None, why_full(queued.resources, place)))
            del open_places[queued.backend]
            continue
        decisions.append(Decision(queued.job, queued.backend, allocation, ""))
        used = (*place.used, UsedSlots(queued.job, allocation))
        open_places[queued.backend] = replace(place, used=used)
    return decisions


def allocate(need: Resources, place: SlotPool) -> Allocation | None:
    """The slots for this need, or None when they are not free now."""
    (cpus, memory, gpus), free = demand(need, place.capacity), place.free
    if cpus > free.cpus + 1e-9 or memory > free.memory_bytes or gpus > len(free.gpus):
        return None
    return Allocation(cpus=cpus, memory_bytes=memory, gpus=free.gpus[:gpus])


def demand(need: Resources, capacity: Capacity) -> tuple[float, int, int]:
    """Return the CPUs, bytes of memory and number of GPUs that a need takes on such a machine.

    A job without a size takes the whole machine.
    """
    if need.whole_machine:
        return capacity.cpus, capacity.memory_bytes, need.gpus or len(capacity.gpus)
    cpus = need.cpus if need.cpus is not None else min(1.0, capacity.cpus)
    memory = need.memory_bytes
    if memory is None:
        memory = int(capacity.memory_bytes * min(cpus / capacity.cpus, 1.0))
    return cpus, memory, need.gpus


def why_never(need: Resources, capacity: Capacity, place: str = "this computer") -> str:
    """Why such a machine could never hold this; empty when it could."""
    lacks = list(_lacks(need, capacity))
    if not lacks:
        return ""
    asked, there = zip(*lacks, strict=True)
    return f"asks for {' and '.join(asked)}; {place} has {' and '.join(there)}"


def _lacks(need: Resources, has: Capacity) -> Iterator[tuple[str, str]]:
    """What is asked for and what there is of it, for everything there is too little of."""
    if need.cpus is not None and need.cpus > has.cpus:
        yield _count(need.cpus, "CPU"), f"{has.cpus:g}"
    if need.memory_bytes is not None and need.memory_bytes > has.memory_bytes:
        yield f"{format_memory(need.memory_bytes)} of memory", format_memory(has.memory_bytes)
    if need.gpus > len(has.gpus):
        yield _count(need.gpus, "GPU"), f"{len(has.gpus) or 'none'}"
    elif need.gpus and 0 < has.gpu_memory_bytes < (need.gpu_memory_bytes or 0):
        wanted = format_memory(need.gpu_memory_bytes or 0)
        yield f"GPUs with {wanted}", f"{format_memory(has.gpu_memory_bytes)} on each"


def why_full(need: Resources, place: SlotPool) -> str:
    """Which slots are missing and who holds them."""
    holders = ", ".join(sorted({t.holder for t in place.used})) or "nobody"
    if need.whole_machine:
        return f"wants the whole computer, which {holders} uses now; with --cpus or --tier it could run beside"
    (cpus, memory, gpus), free = demand(need, place.capacity), place.free
    if gpus > len(free.gpus):
        return f"waits for {_count(gpus, 'GPU')}: {len(free.gpus)} free, held by {holders}"
    if cpus > free.cpus:
        return f"waits for {cpus:g} CPUs: {max(free.cpus, 0):g} free, held by {holders}"
    return f"waits for {format_memory(memory)} of memory: held by {holders}"


def _count(number: float, noun: str) -> str:
    return f"{number:g} {noun}{'' if number == 1 else 's'}"
