"""Which of a provider's offers a backend returns for a need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from crucible.core.compute.gpus import display_name
from crucible.core.compute.offers import Need, Offer
from crucible.core.compute.regions import in_regions
from crucible.core.compute.resources import Capacity, Resources
from crucible.core.scheduling.slots import why_too_small

MOST_OFFERS = 20
MOST_NEAREST = 3
"""Offers that are returned if none fits: the nearest, with what they lack."""


def choose_offers(offers: Iterable[Offer], need: Need, *, limit: int = MOST_OFFERS) -> list[Offer]:
    """Return at most `limit` offers that fit, cheapest first; if none does, the nearest with `why_not`.

    `offers`: all that the provider has. One that it cannot sell now has a `why_not` already, and does not fit.
    """
    wanted = [
        offer
        for offer in offers
        if (not need.regions or in_regions(offer.region, need.regions))
        and offer.market in (need.markets or (offer.market,))
    ]
    fitting = [offer for offer in wanted if _fits(offer, need)]
    return sorted(fitting, key=lambda offer: offer.rate)[:limit] or nearest_offers(wanted, need.resources)


def nearest_offers(offers: Iterable[Offer], need: Resources) -> list[Offer]:
    """Return the offers that lack least, each with what it lacks."""
    nearest = sorted(offers, key=lambda offer: (_shortage(need, offer.capacity), offer.rate))
    return [
        replace(offer, why_not=why_too_small(need, offer.capacity, offer.instance_type) or offer.why_not)
        for offer in nearest[:MOST_NEAREST]
    ]


def has_gpu(offer: Offer, types: tuple[str, ...]) -> bool:
    """Return whether the offer's GPU is one of these types; True if any type will do."""
    return not types or display_name(offer.capacity.gpu_name) in types


def _fits(offer: Offer, need: Need) -> bool:
    too_small = why_too_small(need.resources, offer.capacity, offer.instance_type)
    return offer.runnable and not too_small and has_gpu(offer, need.gpu_types)


def _shortage(need: Resources, capacity: Capacity) -> float:
    """Return the sum of the shares of the need that this capacity lacks."""
    pairs = (
        (need.cpus or 0.0, capacity.cpus),
        (need.memory_bytes or 0, capacity.memory_bytes),
        (need.gpus, len(capacity.gpus)),
        (need.gpu_memory_bytes or 0, capacity.gpu_memory_bytes),
    )
    return sum(max(0.0, 1 - has / wants) for wants, has in pairs if wants)
