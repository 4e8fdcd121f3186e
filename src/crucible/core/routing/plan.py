"""Plan: the candidates for a job, best first, and the offers that are none, each with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from crucible.core.compute.offers import Market, Offer
from crucible.core.compute.pricing import MICROS
from crucible.core.errors import BadInput
from crucible.core.routing import rejections
from crucible.core.routing.estimate import Estimate, Estimates
from crucible.core.routing.machine_speed import SpeedModel
from crucible.core.routing.plan_request import Objective, PlanRequest
from crucible.core.routing.pros_and_cons import cons, pros
from crucible.core.routing.workload import Workload

HOUR_IS_WORTH = 2 * MICROS
"""Balanced: what an hour of waiting counts for, in micro-dollars."""
SPOT_HEADROOM = 1.25
"""How far a spot price may rise over today's before the job waits instead."""
LAST = float("inf")


class RankedOffer(NamedTuple):
    """An offer that holds the job, with what it would come to. `weight` is that in the unit of the objective, where
    less is better. `on_demand` is what the same machine costs an hour when it is not taken back.
    """

    work: Workload
    max_cost: int | None
    offer: Offer
    estimate: Estimate
    weight: float
    best: float
    """The weight of the first."""
    on_demand: int | None = None

    @property
    def score(self) -> float:
        """1 for the best; half as good, half the score. A cent, or a second, keeps free from being a division by 0."""
        unit = MICROS / 100
        return round((self.best + unit) / (self.weight + unit), 4)

    @property
    def ceiling(self) -> int:
        """The highest hourly rate at which it would still be placed there."""
        estimated, most = self.estimate, self.max_cost
        headroom = SPOT_HEADROOM if self.offer.market is Market.SPOT else 1.0
        if most is not None and estimated.machine and estimated.total:
            left = most - (estimated.total - estimated.machine)
            headroom = min(headroom, left / estimated.machine)
        return int(self.offer.rate * max(headroom, 1.0))

    @property
    def pros(self) -> tuple[str, ...]:
        return tuple(pros(self.work, self.offer, self.estimate, self.on_demand))

    @property
    def cons(self) -> tuple[str, ...]:
        return tuple(cons(self.work, self.offer, self.estimate))


class RejectedOffer(NamedTuple):
    """`too_dear`: only what it costs speaks against it."""

    offer: Offer
    why: str
    over_budget: bool = False


@dataclass(frozen=True)
class Plan:
    """`ranked` are the candidates. `elsewhere` would be, but cannot run anything just now: their offers say why.

    `nearest` is the offer that misses least, when none holds the job.
    """

    ranked: tuple[RankedOffer, ...]
    rejected: tuple[RejectedOffer, ...]
    nearest: RejectedOffer | None = None
    unconnected: tuple[RankedOffer, ...] = ()


class _WeighedOffer(NamedTuple):
    """Sorted as it stands, from its weight to its position in the list: the same offers come in the same order."""

    weight: float
    """In the unit of the objective; less is better."""
    eta: float
    total: int
    rate: int
    backend: str
    region: str
    instance_type: str
    market: Market
    position: int
    offer: Offer
    estimated: Estimate

    @property
    def name(self) -> tuple[str, str, str]:
        """The same in every market."""
        return self[4:7]


def route(work: Workload, request: PlanRequest, offers: Iterable[Offer], speeds: SpeedModel) -> Plan:
    """Rank the offers. Raises BadInput for a request that contradicts itself, or the work."""
    check_request(request, work)
    judged, estimates = rejections.OfferCheck(work, request), Estimates(work, speeds)
    fitting: list[_WeighedOffer] = []
    rejected: list[RejectedOffer] = []
    for place, offer in enumerate(offers):
        why, dear = judged.why_never(offer), False
        if not why:
            found = estimates.estimate(offer)
            why, dear = judged.exceeds_limits(offer, found)
            if not why:
                fitting.append(_weighed(request.optimize, offer, found, place))
                continue
        rejected.append(RejectedOffer(offer, why, dear))
    fitting.sort()
    ranked = tuple(_ranked(work, request.max_cost_micros, [one for one in fitting if one.offer.runnable]))
    elsewhere = tuple(_ranked(work, request.max_cost_micros, [one for one in fitting if not one.offer.runnable]))
    nearest = None if fitting else _nearest(judged, rejected, estimates)
    return Plan(ranked, tuple(rejected), nearest, elsewhere)


def check_request(request: PlanRequest, work: Workload) -> None:
    """Raise BadInput for a request that contradicts itself, or the work."""
    if request.optimize is Objective.DEADLINE and request.deadline_hours is None:
        raise BadInput("There is no deadline to meet.", fix="Say when it has to be done: --deadline 6h.")
    if request.planned_market is Market.SPOT and not work.interruptible:
        raise BadInput(
            "It may not be interrupted, and asks for spot machines, which are taken back.",
            fix="Allow interruptions (interruptible), or leave the market to us.",
        )
    if request.gpu_types and work.need.gpus == 0:
        kinds = " or ".join(request.gpu_types)
        raise BadInput(f"It wants {kinds}, and no GPU.", fix="Ask for at least one: --gpus 1.")


def _ranked(work: Workload, max_cost: int | None, fitting: list[_WeighedOffer]) -> Iterator[RankedOffer]:
    least = fitting[0].weight if fitting else 0.0
    cheapest = {one.name: one.rate for one in fitting if one.market is Market.ON_DEMAND}
    for one in fitting:
        instead = cheapest.get(one.name) if one.market is Market.SPOT else None
        yield RankedOffer(work, max_cost, one.offer, one.estimated, one.weight, least, instead)


def _weighed(objective: Objective, offer: Offer, estimated: Estimate, place: int) -> _WeighedOffer:
    """Where nobody knows how long it takes, an hour stands for the whole, and it comes behind its equals."""
    rate, eta, total = offer.rate, estimated.eta, estimated.total
    last = LAST if eta is None else eta
    if eta is None:
        eta = offer.wait_seconds + offer.startup_seconds + 3600.0
    if total is None:
        total = rate
    if objective is Objective.SPEED:
        weight = eta
    elif objective is Objective.BALANCED:
        weight = total + eta / 3600 * HOUR_IS_WORTH
    else:
        weight = float(total)
    names = offer.backend, offer.region, offer.instance_type
    return _WeighedOffer(weight, last, total, rate, *names, offer.market, place, offer, estimated)


def _nearest(
    judged: rejections.OfferCheck, rejected: list[RejectedOffer], estimates: Estimates
) -> RejectedOffer | None:
    def misses(one: RejectedOffer) -> tuple[object, ...]:
        offer = one.offer
        missing = judged.distance(offer, estimates.estimate(offer))
        return missing, offer.rate, offer.backend, offer.region, offer.instance_type

    return min(rejected, key=misses, default=None)
