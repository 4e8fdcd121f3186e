"""A small market: places and machines with the prices of the documents, and how fast their GPUs are."""

from __future__ import annotations

from dataclasses import replace

from crucible.core.offers import Billing, Market, Offer
from crucible.core.pricing import MICROS
from crucible.core.resources import Capacity, GiB, Resources
from crucible.core.routing.estimate import Candidate, Conditions
from crucible.core.routing.work import Compute, GpuNeed, Work

HOUR = 3600.0
MEMORY = {"T4": 16, "V100": 16, "A10G": 24, "A100": 80}
SPEED = {"T4": 1.0, "V100": 2.0, "A10G": 2.5, "A100": 8.0}
FIRST_HOUR = Billing(granularity=1, minimum=3600)
BY_SECOND = Billing()


class Table:
    """T4 is 1; a processor is a hundredth of it."""

    def speed(self, gpu: str, precision: str) -> float | None:
        return SPEED.get(gpu)

    def cpu_speed(self, cpus: float) -> float:
        return cpus / 100


SPEEDS = Table()


def offer(name: str, dollars: float, gpu: str = "T4", gpus: int = 1, **more: object) -> Offer:
    """`backend/region/type`."""
    backend, region, kind = name.split("/")
    capacity = Capacity(
        cpus=8,
        memory_bytes=32 * GiB,
        gpus=tuple(range(gpus)) if gpu else (),
        gpu_memory_bytes=MEMORY.get(gpu, 0) * GiB,
        gpu_name=gpu,
    )
    made = Offer(backend, region, kind, capacity, round(dollars * MICROS), billing=BY_SECOND, startup_seconds=300)
    return replace(made, **more)  # type: ignore[arg-type]


def spot(base: Offer, share: float) -> Offer:
    return replace(base, rate=round(base.rate * share), market=Market.SPOT)


def at(offer: Offer, **conditions: object) -> Candidate:
    return Candidate(offer, Conditions(**conditions))  # type: ignore[arg-type]


def work(hours: float | None = 2.0, gpu: str = "T4", memory: int = 8, **more: object) -> Work:
    """For one GPU with so many GiB; the hours are those on `gpu`."""
    need = Resources(gpus=1, gpu_memory_bytes=memory * GiB)
    compute = None if hours is None else Compute(hours * HOUR, gpu)
    return replace(Work(need, GpuNeed.REQUIRED, compute), **more)  # type: ignore[arg-type]
