"""A small market: places and machines with the prices of the documents, and how fast their GPUs are."""

from __future__ import annotations

import re
from dataclasses import replace

from crucible.core.compute.offers import Billing, Market, Offer, Tariff
from crucible.core.compute.pricing import MICROS
from crucible.core.compute.resources import Capacity, GiB, Resources
from crucible.core.routing.plan_request import PlanRequest
from crucible.core.routing.profile import GpuNeed
from crucible.core.routing.workload import ComputeTime, Workload

HOUR = 3600.0
MEMORY = {"T4": 16, "V100": 16, "A10G": 24, "A100": 80}
SPEED = {"T4": 1.0, "V100": 2.0, "A10G": 2.5, "A100": 8.0}
FIRST_HOUR = Billing(granularity=1, minimum=3600)
BY_SECOND = Billing()


class Table:
    """T4 is 1; a processor is a hundredth of it. Spot machines are taken back as often as their region is called."""

    def speed(self, gpu: str, precision: str) -> float | None:
        return SPEED.get(gpu)

    def cpu_speed(self, cpus: float) -> float:
        return cpus / 100

    def interruptions(self, offer: Offer) -> float:
        found = re.search(r"@([^@]+)$", offer.region)
        return float(found[1]) if found and offer.market is Market.SPOT else 0.0


KNOWN = Table()


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


def at(offer: Offer, **tariff: object) -> Offer:
    """There, with what else it charges and promises."""
    return replace(offer, tariff=Tariff(**tariff))  # type: ignore[arg-type]


def sized(base: Offer, memory: int) -> Offer:
    """With so many GiB of its own memory."""
    return replace(base, capacity=base.capacity.model_copy(update={"memory_bytes": memory * GiB}))


def asked(**more: object) -> PlanRequest:
    """A request with these fields as they are."""
    return PlanRequest().model_copy(update=more)


def taken_back(offer: Offer, an_hour: float) -> Offer:
    """So often, on average."""
    return replace(offer, region=f"{offer.region}@{an_hour}")


def work(hours: float | None = 2.0, gpu: str = "T4", memory: int = 8, **more: object) -> Workload:
    """For one GPU with so many GiB; the hours are those on `gpu`."""
    need = Resources(gpus=1, gpu_memory_bytes=memory * GiB)
    compute = None if hours is None else ComputeTime(hours * HOUR, gpu)
    return replace(Workload(need, GpuNeed.REQUIRED, compute), **more)  # type: ignore[arg-type]
