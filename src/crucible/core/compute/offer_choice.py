"""Choose an offer of a backend that makes machines on demand: the cheapest that has failed the job least often.

The `resources` of the specs here are the effective ones, with the tier applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from crucible.core.compute import budget, scheduling
from crucible.core.compute.gpus import display_name, join_types
from crucible.core.compute.offers import Market, Offer
from crucible.core.compute.resources import Allocation
from crucible.core.job.spec import JobSpec

OfferKind = tuple[str, str, Market]
"""Region, instance type and market: a provider's capacity differs by all three."""

NOTHING_FAILED: Mapping[OfferKind, int] = MappingProxyType({})


@dataclass(frozen=True)
class Choice:
    """The chosen offer, or None with `why` none fits.

    `all_failed_before`: every kind of fitting offer has failed this job before; the chosen one least often.
    """

    offer: Offer | None
    why: str = ""
    all_failed_before: bool = False


def choose_offer(spec: JobSpec, offers: Iterable[Offer], failures: Mapping[OfferKind, int] = NOTHING_FAILED) -> Choice:
    """Return the cheapest of the fitting offers whose kind has failed the job least often."""
    reasons = {offer: why_not(spec, offer) for offer in offers}
    fitting = [offer for offer, why in reasons.items() if not why]
    if not fitting:
        unavailable = [offer.why_not for offer in reasons if not why_never(spec, offer)]
        return Choice(None, next(iter([*unavailable, *reasons.values()]), "there are no offers at the moment"))
    best = min(fitting, key=lambda offer: (failures.get(offer_kind(offer), 0), *_rank(offer)))
    if offer_kind(best) in failures:
        return Choice(best, f"all {len(fitting)} offers that fit have failed it", all_failed_before=True)
    return Choice(best)


def why_not(spec: JobSpec, offer: Offer) -> str:
    """Return why this offer cannot be used for the job now; empty if it can."""
    return why_never(spec, offer) or offer.why_not


def why_never(spec: JobSpec, offer: Offer) -> str:
    """Return why this offer can never be used for the job; empty if it may."""
    market = spec.market or Market.ON_DEMAND
    if spec.regions and not any(offer.region.startswith(region) for region in spec.regions):
        return f"wants {' or '.join(spec.regions)}; {offer.instance_type} is in {offer.region}"
    if offer.market is not market:
        return f"wants {market.value}; {offer.instance_type} is {offer.market.value}"
    return (
        wrong_gpu(spec.gpu_types, offer)
        or scheduling.why_never(spec.resources, offer.capacity, offer.instance_type)
        or budget.why_over_budget(spec.max_cost_micros, offer)
    )


def wrong_gpu(types: tuple[str, ...], offer: Offer) -> str:
    """Return why the offer's GPU is not one of these types; empty if it is, or if any type will do."""
    has = offer.capacity.gpu_name
    if not types or display_name(has) in types:
        return ""
    return f"wants {join_types(types)}; {offer.instance_type} has {has or 'no GPU'}"


def offer_kind(offer: Offer) -> OfferKind:
    return offer.region, offer.instance_type, offer.market


def allocate_whole_machine(spec: JobSpec, offer: Offer) -> Allocation:
    """Return the slots of a machine made for one attempt: all of it, the GPUs requested, the time the budget pays."""
    capacity = offer.capacity
    _, _, gpus = scheduling.demand(spec.resources, capacity)
    seconds = budget.affordable_seconds(spec.max_cost_micros, offer)
    return Allocation(
        cpus=capacity.cpus, memory_bytes=capacity.memory_bytes, gpus=capacity.gpus[:gpus], seconds=seconds
    )


def _rank(offer: Offer) -> tuple[int, float, str, str]:
    return offer.rate, offer.startup_seconds, offer.region, offer.instance_type
