"""Plan: the candidates for a job, best first, and the offers that are none, each with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from crucible.core.offers import Market, Offer
from crucible.core.pricing import MICROS
from crucible.core.routing import judge
from crucible.core.routing.estimate import Estimate, estimate
from crucible.core.routing.knowledge import Knowledge
from crucible.core.routing.wishes import Objective, Wishes, check
from crucible.core.routing.words import Ranked, cons, pros
from crucible.core.routing.work import Work

HOUR_IS_WORTH = 2 * MICROS
"""Balanced: what an hour of waiting counts for, in micro-dollars."""
SPOT_HEADROOM = 1.25
"""How far a spot price may rise over today's before the job waits instead."""
LAST = float("inf")


@dataclass(frozen=True)
class Rejected:
    offer: Offer
    why: str


@dataclass(frozen=True)
class Plan:
    """`nearest` is the offer that misses least, when none holds the job."""

    ranked: tuple[Ranked, ...]
    rejected: tuple[Rejected, ...]
    nearest: Rejected | None = None


@dataclass(frozen=True)
class _Weighed:
    offer: Offer
    estimated: Estimate
    weight: float
    """In the unit of the objective; less is better."""


def route(work: Work, wishes: Wishes, offers: Iterable[Offer], known: Knowledge) -> Plan:
    """Raises BadInput for wishes that contradict each other."""
    check(wishes, work)
    fitting: list[_Weighed] = []
    rejected: list[Rejected] = []
    for offer in offers:
        weighed = _weighed(work, wishes, offer, known)
        if isinstance(weighed, Rejected):
            rejected.append(weighed)
        else:
            fitting.append(weighed)
    fitting.sort(key=_order)
    ranked = tuple(_ranked(work, wishes, fitting))
    return Plan(ranked, tuple(rejected), None if ranked else _nearest(work, rejected))


def _weighed(work: Work, wishes: Wishes, offer: Offer, known: Knowledge) -> _Weighed | Rejected:
    never = judge.why_never(work, wishes, offer)
    if never:
        return Rejected(offer, never)
    estimated = estimate(work, offer, known)
    why = judge.why_not(wishes, offer, estimated)
    if why:
        return Rejected(offer, why)
    return _Weighed(offer, estimated, _weight(wishes.optimize, offer, estimated))


def _ranked(work: Work, wishes: Wishes, fitting: list[_Weighed]) -> Iterator[Ranked]:
    least = fitting[0].weight if fitting else 0.0
    cheapest = {_twin(one.offer): one.offer.rate for one in fitting if _is_on_demand(one)}
    for one in fitting:
        offer = one.offer
        instead = cheapest.get(_twin(offer)) if offer.market is Market.SPOT else None
        yield Ranked(
            offer=offer,
            estimate=one.estimated,
            score=_score(one.weight, least),
            ceiling=_ceiling(wishes, offer, one.estimated),
            pros=tuple(pros(work, one.offer, one.estimated, instead)),
            cons=tuple(cons(work, one.offer, one.estimated)),
        )


def _weight(objective: Objective, offer: Offer, estimated: Estimate) -> float:
    """Where nobody knows how long it takes, an hour stands for the whole."""
    total = offer.rate if estimated.total is None else estimated.total
    eta = offer.wait_seconds + offer.startup_seconds + 3600.0 if estimated.eta is None else estimated.eta
    if objective is Objective.SPEED:
        return eta
    if objective is Objective.BALANCED:
        return total + eta / 3600 * HOUR_IS_WORTH
    return float(total)


def _order(one: _Weighed) -> tuple[object, ...]:
    """The same offers come in the same order, however they were listed."""
    offer, eta, total = one.offer, one.estimated.eta, one.estimated.total
    ties = (LAST if eta is None else eta, offer.rate if total is None else total, offer.rate)
    return one.weight, *ties, offer.backend, offer.region, offer.instance_type, offer.market


def _score(weight: float, least: float) -> float:
    """1 for the best; half as good, half the score. A cent, or a second, keeps free from being a division by 0."""
    unit = MICROS / 100
    return round((least + unit) / (weight + unit), 4)


def _ceiling(wishes: Wishes, offer: Offer, estimated: Estimate) -> int:
    """The highest hourly rate at which it would still be placed there."""
    headroom = SPOT_HEADROOM if offer.market is Market.SPOT else 1.0
    if wishes.max_cost is not None and estimated.machine and estimated.total:
        left = wishes.max_cost - (estimated.total - estimated.machine)
        headroom = min(headroom, left / estimated.machine)
    return int(offer.rate * max(headroom, 1.0))


def _nearest(work: Work, rejected: list[Rejected]) -> Rejected | None:
    def misses(one: Rejected) -> tuple[object, ...]:
        offer = one.offer
        return judge.shortfall(work, offer), offer.rate, offer.backend, offer.region, offer.instance_type

    return min(rejected, key=misses, default=None)


def _is_on_demand(one: _Weighed) -> bool:
    return one.offer.market is Market.ON_DEMAND


def _twin(offer: Offer) -> tuple[str, str, str]:
    return offer.backend, offer.region, offer.instance_type
