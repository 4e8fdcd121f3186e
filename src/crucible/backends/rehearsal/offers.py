"""Convert the simulated cloud's price list to offers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from crucible.backends.rehearsal.connection import Json
from crucible.core.compute.offers import Availability, Billing, Market, Offer
from crucible.core.compute.resources import Capacity, Resources
from crucible.core.scheduling.slots import why_too_small

SCARCE = 2
"""Instances left, up to which a launch may well be refused."""


def make_offers(backend: str, need: Resources, types: list[Json], items: list[Json], dated: str) -> list[Offer]:
    """Return the offers, cheapest first. Those that are too small or sold out have a `why_not`."""
    kinds = {str(kind["name"]): kind for kind in types}
    found = (_offer(backend, need, kinds[str(item["type"])], item, dated) for item in items)
    return sorted(found, key=lambda offer: (offer.rate, offer.region, offer.market))


def _offer(backend: str, need: Resources, kind: Json, item: Json, dated: str) -> Offer:
    name, market, left = str(item["type"]), Market(str(item["market"])), _int(item, "available")
    capacity = _capacity(kind)
    sold_out = "" if left else f"the simulated cloud has no {market} {name} left in {item['zone']} at the moment"
    return Offer(
        backend=backend,
        region=str(item["zone"]),
        instance_type=name,
        capacity=capacity,
        rate=_int(item, "rate"),
        billing=Billing(_int(kind, "granularity_seconds"), _int(kind, "minimum_seconds")),
        market=market,
        availability=Availability.AVAILABLE if left > SCARCE else Availability.LIMITED,
        startup_seconds=_float(kind, "boot_seconds"),
        dated=dated,
        why_not=why_too_small(need, capacity, f"{name} (simulated)") or sold_out,
    )


def _capacity(kind: Json) -> Capacity:
    return Capacity(
        cpus=_int(kind, "vcpus"),
        memory_bytes=_int(kind, "memory_bytes"),
        gpus=tuple(range(_int(kind, "gpus"))),
        gpu_memory_bytes=_int(kind, "gpu_memory_bytes"),
        gpu_name=str(kind["gpu_name"]),
    )


def documents(answer: Mapping[str, object], name: str) -> Iterator[Json]:
    """Yield the JSON objects in a list of a response."""
    found = answer.get(name)
    yield from (item for item in found if isinstance(item, dict)) if isinstance(found, list) else ()


def _int(document: Json, name: str) -> int:
    return int(str(document[name]))


def _float(document: Json, name: str) -> float:
    return float(str(document[name]))
