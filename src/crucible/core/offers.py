"""Offers: the places that could run a job, as data."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from crucible.core.resources import Capacity


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
    """How a provider turns time into money: rounded up to `granularity` seconds, at least `minimum`."""

    granularity: int = 1
    minimum: int = 0


@dataclass(frozen=True)
class Offer:
    """A place that could run it.

    `rate` is micro-dollars per hour; `why_not` is set when it is not runnable.
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

    @property
    def runnable(self) -> bool:
        return not self.why_not
