"""Offers of a provider from the prices of the catalog, for backends whose provider has no interface for offers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from crucible import catalog as prices
from crucible.catalog import Catalog
from crucible.core.compute.gpus import display_name
from crucible.core.compute.offers import Market, Need, Offer
from crucible.core.compute.resources import Capacity, Resources
from crucible.core.scheduling.slots import why_never

MOST_OFFERS = 20
MOST_NEAREST = 3
"""Offers that are returned if none fits: the nearest, with what they lack."""
MARKETS = (Market.ON_DEMAND, Market.SPOT)


def catalog_offers(catalog: Catalog, provider: str, need: Need, *, limit: int = MOST_OFFERS) -> list[Offer]:
    """Return at most `limit` offers that fit, cheapest first; if none does, the nearest with `why_not`.

    An instance type is offered once for each market, in its cheapest region. Regions are matched by their beginning.
    """
    if provider not in catalog.providers():
        return []
    regions = tuple(name for name in catalog.regions() if name.startswith(need.regions or ""))
    if not regions:
        return []
    anything = prices.Need(providers=(provider,), regions=regions, markets=need.markets or MARKETS)
    size = need.resources
    wanted = replace(
        anything,
        gpus=size.gpus,
        gpu_memory_bytes=size.gpu_memory_bytes or 0,
        vcpus=size.cpus or 0.0,
        memory_bytes=size.memory_bytes or 0,
    )
    fitting = (offer for offer in catalog.offers(wanted) if _has_gpu(offer, need.gpu_types))
    return list(islice(_once_each(fitting), limit)) or _nearest(catalog.offers(anything), size)


def _has_gpu(offer: Offer, types: tuple[str, ...]) -> bool:
    return not types or display_name(offer.capacity.gpu_name) in types


def _once_each(offers: Iterable[Offer]) -> Iterator[Offer]:
    """Yield the first offer of each instance type and market."""
    seen = set()
    for offer in offers:
        if (offer.instance_type, offer.market) not in seen:
            seen.add((offer.instance_type, offer.market))
            yield offer


def _nearest(offers: Iterable[Offer], need: Resources) -> list[Offer]:
    """Return the offers that lack least, each with what it lacks."""
    nearest = sorted(_once_each(offers), key=lambda offer: (_shortage(need, offer.capacity), offer.rate))
    return [
        replace(offer, why_not=why_never(need, offer.capacity, offer.instance_type)) for offer in nearest[:MOST_NEAREST]
    ]


def _shortage(need: Resources, capacity: Capacity) -> float:
    """Return the sum of the shares of the need that this capacity lacks."""
    pairs = (
        (need.cpus or 0.0, capacity.cpus),
        (need.memory_bytes or 0, capacity.memory_bytes),
        (need.gpus, len(capacity.gpus)),
        (need.gpu_memory_bytes or 0, capacity.gpu_memory_bytes),
    )
    return sum(max(0.0, 1 - has / wants) for wants, has in pairs if wants)
