"""The catalogue of the cloud: zones, types, markets and list prices. All of it is invented.

Rates are micro-dollars per hour.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

GIB = 1024**3


class Market(enum.StrEnum):
    ON_DEMAND = "on_demand"
    SPOT = "spot"
    RESERVED = "reserved"


@dataclass(frozen=True)
class Zone:
    name: str
    region: str


@dataclass(frozen=True)
class InstanceType:
    """A type of instance. `stock`: how many a zone has on demand, as spot and as reserved instances."""

    name: str
    vcpus: int
    memory_bytes: int
    rate: int
    stock: tuple[int, int, int]
    boot_seconds: float
    gpus: int = 0
    gpu_name: str = ""
    gpu_memory_bytes: int = 0
    granularity_seconds: int = 1
    minimum_seconds: int = 60


@dataclass(frozen=True)
class Item:
    """Something to rent: a type in a zone on a market."""

    zone: str
    type: str
    market: Market


REGIONS = ("simulated-north", "simulated-east", "simulated-south")
ZONES = {name: Zone(name, region) for region in REGIONS for name in (f"{region}-a", f"{region}-b")}

TYPES = {
    kind.name: kind
    for kind in (
        InstanceType("sim.c2", 2, 8 * GIB, 96_000, (120, 120, 10), 1.0),
        InstanceType("sim.c8", 8, 32 * GIB, 384_000, (60, 60, 6), 1.0),
        InstanceType("sim.m16", 16, 128 * GIB, 1_008_000, (24, 24, 4), 1.5),
        InstanceType("sim.t4.1", 4, 16 * GIB, 526_000, (16, 16, 2), 2.0, 1, "T4", 16 * GIB),
        InstanceType("sim.a100.1", 12, 85 * GIB, 3_673_000, (8, 8, 1), 3.0, 1, "A100-40GB-SXM", 40 * GIB),
        InstanceType("sim.h100.8", 96, 960 * GIB, 88_400_000, (1, 2, 1), 4, 8, "H100-SXM", 80 * GIB),
    )
}  # fmt: skip

VCPU_QUOTA = 1024
"""vCPUs that may run at once in a region."""

_ZONE_PERCENT = {name: 100 + 3 * index for index, name in enumerate(ZONES)}
_MARKET_PERCENT = {Market.ON_DEMAND: 100, Market.SPOT: 30, Market.RESERVED: 62}


def list_rate(item: Item) -> int:
    """Return the list price. A spot price moves around it."""
    return TYPES[item.type].rate * _ZONE_PERCENT[item.zone] * _MARKET_PERCENT[item.market] // 10_000


def stock(item: Item) -> int:
    """Return the number of instances before any is rented."""
    return TYPES[item.type].stock[list(Market).index(item.market)]


def all_items() -> Iterator[Item]:
    for zone in ZONES:
        for name in TYPES:
            yield from (Item(zone, name, market) for market in Market)
