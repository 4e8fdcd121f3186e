"""Offers: machines that can run a job, with their prices."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from crucible.core.compute.resources import Capacity, Resources


class Market(enum.StrEnum):
    ON_DEMAND = "on_demand"
    SPOT = "spot"
    RESERVED = "reserved"


class Availability(enum.StrEnum):
    AVAILABLE = "available"
    QUEUED = "queued"
    LIMITED = "limited"


@dataclass(frozen=True)
class Billing:
    """A provider's billing rule: time is rounded up to `granularity` seconds, and at least `minimum` is billed."""

    granularity: int = 1
    minimum: int = 0


@dataclass(frozen=True)
class Tariff:
    """Other charges and terms of a provider; None: unknown.

    Money is in micro-dollars. `commitment_years`: how long a reserved price must be paid, used or not. `interruption`:
    the lowest and highest share of spot machines that the provider says it reclaims in a month. `dedicated`: the
    machine is single-tenant. `longest_seconds`: the maximum runtime of a machine. `source`: where the price was read.
    """

    egress_per_gb: int | None = None
    storage_per_gb_month: int | None = None
    commitment_years: int = 0
    interruption: tuple[float, float] | None = None
    dedicated: bool | None = None
    longest_seconds: float | None = None
    source: str = ""


@dataclass(frozen=True)
class Nodes:
    """The backend has computers that are shared out slot by slot: every offer names its node, and we count its slots.

    `shared`: attempts on a node share one machine of ours; otherwise each has its own there (a container).
    """

    shared: bool = True


@dataclass(frozen=True)
class OnDemand:
    """A machine is made for each attempt."""


@dataclass(frozen=True)
class ProviderQueue:
    """A machine is made for each attempt, and waits in the provider's own queue. At most `limit` of ours wait there."""

    limit: int = 1


@dataclass(frozen=True)
class Need:
    """What offers are asked for. Empty: any GPU type, region or market."""

    resources: Resources = Resources()
    gpu_types: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    markets: tuple[Market, ...] = ()


@dataclass(frozen=True)
class Node:
    """A physical computer that is shared out slot by slot.

    `id` is its identity, the same whatever backends reach it; `name` is what users call it. `max_attempts`: how many
    attempts may run there at once; None: as many as its capacity holds. `busy_gpus`: GPUs that programs outside this
    deployment use now.
    """

    id: str
    name: str
    max_attempts: int | None = None
    busy_gpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class Offer:
    """An instance type that could run a job.

    `rate` is in micro-dollars per hour; `why_not` is set if the offer is not runnable now. `node`: the computer whose
    slots are offered; None if a machine is made for the job.
    """

    backend: str
    region: str
    instance_type: str
    capacity: Capacity
    rate: int
    billing: Billing = Billing()
    market: Market = Market.ON_DEMAND
    availability: Availability = Availability.AVAILABLE
    wait_seconds: float = 0.0
    startup_seconds: float = 0.0
    dated: str = ""
    why_not: str = ""
    tariff: Tariff = Tariff()
    node: Node | None = None

    @property
    def runnable(self) -> bool:
        return not self.why_not
