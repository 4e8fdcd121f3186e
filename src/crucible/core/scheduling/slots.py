"""The slots of a node: what is free there, what a job takes of it, and why it does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from crucible.core.compute.offers import Node, Offer
from crucible.core.compute.resources import Allocation, Capacity, Resources, format_memory


@dataclass(frozen=True)
class UsedSlots:
    """Slots that an attempt occupies; `holder` is the short id of its job."""

    holder: str
    allocation: Allocation


@dataclass(frozen=True)
class NodeSlots:
    """The capacity of a node, and who uses it. `max_attempts`: how many attempts may run there at once.

    `busy_gpus` are used by programs that are not ours.
    """

    capacity: Capacity
    used: tuple[UsedSlots, ...] = ()
    max_attempts: int | None = None
    busy_gpus: tuple[int, ...] = ()

    @classmethod
    def from_offer(cls, offer: Offer, node: Node, used: tuple[UsedSlots, ...]) -> NodeSlots:
        """Return the slots of an offer's node."""
        return cls(offer.capacity, used, node.max_attempts, node.busy_gpus)

    @property
    def is_full(self) -> bool:
        """Whether as many attempts run there as may."""
        return self.max_attempts is not None and len(self.used) >= self.max_attempts

    @property
    def free(self) -> Capacity:
        held = [one.allocation for one in self.used]
        used_gpus = {gpu for a in held for gpu in a.gpus} | set(self.busy_gpus)
        return self.capacity.model_copy(
            update={
                "cpus": self.capacity.cpus - sum(a.cpus for a in held),
                "memory_bytes": self.capacity.memory_bytes - sum(a.memory_bytes for a in held),
                "gpus": tuple(g for g in self.capacity.gpus if g not in used_gpus),
            }
        )


def allocate(need: Resources, node: NodeSlots) -> Allocation | None:
    """Return slots for this need, or None if they are not free now."""
    (cpus, memory, gpus), free = demand(need, node.capacity), node.free
    if node.is_full or cpus > free.cpus + 1e-9 or memory > free.memory_bytes or gpus > len(free.gpus):
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


def why_too_small(need: Resources, capacity: Capacity, name: str = "this computer") -> str:
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


def why_full(need: Resources, node: NodeSlots) -> str:
    """Return which slots are missing and who holds them."""
    others = ["programs outside Crucible"] if node.busy_gpus else []
    holders = ", ".join([*sorted({one.holder for one in node.used}), *others]) or "nobody"
    if node.is_full:
        return f"waits for a turn: {_count(node.max_attempts or 0, 'job')} may run there at once, now {holders}"
    if need.whole_machine:
        return f"wants the whole computer, which {holders} uses now; with --cpus or --tier it could run beside"
    (cpus, memory, gpus), free = demand(need, node.capacity), node.free
    if gpus > len(free.gpus):
        return f"waits for {_count(gpus, 'GPU')}: {len(free.gpus)} free, held by {holders}"
    if cpus > free.cpus:
        return f"waits for {cpus:g} CPUs: {max(free.cpus, 0):g} free, held by {holders}"
    return f"waits for {format_memory(memory)} of memory: held by {holders}"


def _count(number: float, noun: str) -> str:
    return f"{number:g} {noun}{'' if number == 1 else 's'}"
