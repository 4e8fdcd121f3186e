"""Offers of a provider from the prices of the catalog, for backends whose provider has no interface for offers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from crucible import catalog as prices
from crucible.backends.offers import MOST_OFFERS, has_gpu, nearest_offers
from crucible.catalog import Catalog
from crucible.core.compute.offers import Market, Need, Offer
from crucible.core.compute.regions import in_regions

MARKETS = (Market.ON_DEMAND, Market.SPOT)


def catalog_offers(catalog: Catalog, provider: str, need: Need, *, limit: int = MOST_OFFERS) -> list[Offer]:
    """Return at most `limit` offers that fit, cheapest first; if none does, the nearest with `why_not`.

    An instance type is offered once for each market, in its cheapest region (`in_regions`).
    """
    if provider not in catalog.providers():
        return []
    regions = tuple(name for name in catalog.regions() if not need.regions or in_regions(name, need.regions))
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
    fitting = (offer for offer in catalog.offers(wanted) if has_gpu(offer, need.gpu_types))
    return list(islice(_once_each(fitting), limit)) or nearest_offers(_once_each(catalog.offers(anything)), size)


def _once_each(offers: Iterable[Offer]) -> Iterator[Offer]:
    """Yield the first offer of each instance type and market."""
    seen = set()
    for offer in offers:
        if (offer.instance_type, offer.market) not in seen:
            seen.add((offer.instance_type, offer.market))
            yield offer
