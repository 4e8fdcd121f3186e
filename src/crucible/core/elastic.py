"""Choosing among a place's offers where machines are made on demand: the cheapest of those that did not fail.

Pure: what was asked for, what is offered, what was tried before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from crucible.core import affording, scheduling
from crucible.core.gpus import called, spoken
from crucible.core.offers import Market, Offer
from crucible.core.resources import Allocation, Resources
from crucible.core.spec import JobSpec

Kind = tuple[str, str, Market]
"""Region, instance type and market: what a place has or has not."""

NOTHING_FAILED: Mapping[Kind, int] = MappingProxyType({})


@dataclass(frozen=True)
class Sought:
    """`market` None: any that cannot be taken back. `regions`, `gpu_types` empty: any.

    `max_cost`: micro-dollars that a try may cost; None: any.
    """

    need: Resources
    market: Market | None = None
    regions: tuple[str, ...] = ()
    gpu_types: tuple[str, ...] = ()
    max_cost: int | None = None

    @classmethod
    def by(cls, spec: JobSpec, need: Resources, market: Market | None) -> Sought:
        return cls(need, market, spec.regions, spec.gpu_types, spec.max_cost_micros)


@dataclass(frozen=True)
class Choice:
    """`offer` is None when there is none; `why` says what is wrong with those there are.

    `tired`: every kind that fits has failed the job before; this one least often.
    """

    offer: Offer | None
    why: str = ""
    tired: bool = False


def choose(sought: Sought, offers: Iterable[Offer], failures: Mapping[Kind, int] = NOTHING_FAILED) -> Choice:
    """Of the offers that fit, those whose kind failed the job least often, and of these the cheapest."""
    reasons = {offer: why_not(sought, offer) for offer in offers}
    fitting = [offer for offer, why in reasons.items() if not why]
    if not fitting:
        lacking = [offer.why_not for offer in reasons if not why_never(sought, offer)]
        return Choice(None, next(iter([*lacking, *reasons.values()]), "nothing is offered there just now"))
    best = min(fitting, key=lambda offer: (failures.get(kind_of(offer), 0), *_rank(offer)))
    if kind_of(best) in failures:
        return Choice(best, f"all {len(fitting)} offers that fit have failed it", tired=True)
    return Choice(best)


def why_not(sought: Sought, offer: Offer) -> str:
    """Why this offer is none for the job just now; empty when it is one."""
    return why_never(sought, offer) or offer.why_not


def why_never(sought: Sought, offer: Offer) -> str:
    """Why it can never be one."""
    market = sought.market or Market.ON_DEMAND
    if sought.regions and not any(offer.region.startswith(region) for region in sought.regions):
        return f"wants {' or '.join(sought.regions)}; {offer.instance_type} is in {offer.region}"
    if offer.market is not market:
        return f"wants {market.value}; {offer.instance_type} is {offer.market.value}"
    return (
        wrong_gpu(sought.gpu_types, offer)
        or scheduling.why_never(sought.need, offer.capacity, offer.instance_type)
        or affording.too_dear(sought.max_cost, offer)
    )


def wrong_gpu(types: tuple[str, ...], offer: Offer) -> str:
    """Why its GPU is none of these types; empty when it is, or when any will do."""
    has = offer.capacity.gpu_name
    if not types or called(has) in types:
        return ""
    return f"wants {spoken(types)}; {offer.instance_type} has {has or 'no GPU'}"


def kind_of(offer: Offer) -> Kind:
    return offer.region, offer.instance_type, offer.market


def whole(sought: Sought, offer: Offer) -> Allocation:
    """A machine made for one attempt is all its own; of its GPUs it gets those it asked for, of time what it pays."""
    capacity = offer.capacity
    gpus = capacity.gpus[: scheduling.demand(sought.need, capacity).gpus]
    seconds = affording.seconds_at(sought.max_cost, offer)
    return Allocation(cpus=capacity.cpus, memory_bytes=capacity.memory_bytes, gpus=gpus, seconds=seconds)


def _rank(offer: Offer) -> tuple[int, float, str, str]:
    return offer.rate, offer.startup_seconds, offer.region, offer.instance_type
