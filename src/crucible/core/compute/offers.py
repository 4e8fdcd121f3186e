"""Offers: machines that can run a job, with their prices."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from crucible.core.compute.resources import Capacity


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
class Offer:
    """An instance type that could run a job.

    `rate` is in micro-dollars per hour; `why_not` is set if the offer is not runnable now.
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

    @property
    def runnable(self) -> bool:
        return not self.why_not
