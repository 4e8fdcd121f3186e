"""The plan of a job: its candidates, best first, and the rejected offers, each with a reason."""

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
"""Micro-dollars that an hour until completion counts for under the `balanced` objective."""
SPOT_HEADROOM = 1.25
"""How far a spot price may rise above the current one before the job waits instead."""
LAST = float("inf")


class RankedOffer(NamedTuple):
    """An offer that can hold the job, with its estimate. `weight` is in the unit of the objective, less is better.
    `on_demand` is the hourly rate of the same instance type on demand, for a spot offer.
    """

    work: Workload
    max_cost: int | None
    offer: Offer
    estimate: Estimate
    weight: float
    best: float
    """The weight of the best offer."""
    on_demand: int | None = None
    is_fallback: bool = False
    """It is on demand, for a job that prefers spot; such offers come after all others."""

    @property
    def score(self) -> float:
        """Return 1.0 for the best offer, and about half for twice its weight.

        A small constant avoids a division by zero for weights of 0.
        """
        unit = MICROS / 100
        return round((self.best + unit) / (self.weight + unit), 4)

    @property
    def ceiling(self) -> int:
        """The highest hourly rate in micro-dollars at which the job would still start there."""
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
    """`over_budget`: its cost is the only reason against it. `refused`: the user may not run the job there."""

    offer: Offer
    why: str
    over_budget: bool = False
    refused: bool = False


@dataclass(frozen=True)
class Plan:
    """`ranked` are the candidates. `unconnected` offers would fit but cannot run anything now: `why_not` says why.

    `nearest` is the rejected offer that misses least, if no offer fits.
    """

    ranked: tuple[RankedOffer, ...]
    rejected: tuple[RejectedOffer, ...]
    nearest: RejectedOffer | None = None
    unconnected: tuple[RankedOffer, ...] = ()


class _WeighedOffer(NamedTuple):
    """Sorts by its fields in their order, down to its position in the input: the same offers give the same order."""

    is_fallback: bool
    weight: float
    """In the unit of the objective, less is better."""
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
        """Backend, region and instance type: the same for each market."""
        return self[5:8]


def route(work: Workload, request: PlanRequest, offers: Iterable[Offer], speeds: SpeedModel) -> Plan:
    """Rank the offers. Raises BadInput for a request that contradicts itself or the workload."""
    check_request(request, work)
    check, estimates = rejections.OfferCheck(work, request), Estimates(work, speeds)
    fitting: list[_WeighedOffer] = []
    rejected: list[RejectedOffer] = []
    for position, offer in enumerate(offers):
        why, over_budget = check.why_never(offer), False
        if not why:
            found = estimates.estimate(offer)
            why, over_budget = check.exceeds_limits(offer, found)
            if not why:
                fitting.append(_weighed(request, offer, found, position))
                continue
        rejected.append(RejectedOffer(offer, why, over_budget))
    fitting.sort()
    ranked = tuple(_ranked(work, request.max_cost_micros, [one for one in fitting if one.offer.runnable]))
    unconnected = tuple(_ranked(work, request.max_cost_micros, [one for one in fitting if not one.offer.runnable]))
    nearest = None if fitting else _nearest(check, rejected, estimates)
    return Plan(ranked, tuple(rejected), nearest, unconnected)


def check_request(request: PlanRequest, work: Workload) -> None:
    """Raise BadInput for a request that contradicts itself or the workload."""
    if request.optimize is Objective.DEADLINE and request.deadline_hours is None:
        raise BadInput("The objective `deadline` needs a deadline.", fix="Give one: --deadline 6h.")
    if request.planned_market is Market.SPOT and not work.interruptible:
        raise BadInput(
            "The job may not be interrupted, and spot machines can be reclaimed at any time.",
            fix="Allow interruptions (interruptible), or leave out the market.",
        )
    if request.gpu_types and work.need.gpus == 0:
        kinds = " or ".join(request.gpu_types)
        raise BadInput(f"--gpu {kinds} conflicts with --gpus 0.", fix="Request at least one: --gpus 1.")


def _ranked(work: Workload, max_cost: int | None, fitting: list[_WeighedOffer]) -> Iterator[RankedOffer]:
    least = min((one.weight for one in fitting), default=0.0)
    cheapest = {one.name: one.rate for one in fitting if one.market is Market.ON_DEMAND}
    for one in fitting:
        instead = cheapest.get(one.name) if one.market is Market.SPOT else None
        yield RankedOffer(work, max_cost, one.offer, one.estimated, one.weight, least, instead, one.is_fallback)


def _weighed(request: PlanRequest, offer: Offer, estimated: Estimate, position: int) -> _WeighedOffer:
    """Weigh an offer. An unknown runtime counts as an hour, and sorts behind other offers of the same weight."""
    objective = request.optimize
    is_fallback = request.spot_fallback and offer.rate > 0 and offer.market is not Market.SPOT
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
    return _WeighedOffer(is_fallback, weight, last, total, rate, *names, offer.market, position, offer, estimated)


def _nearest(check: rejections.OfferCheck, rejected: list[RejectedOffer], estimates: Estimates) -> RejectedOffer | None:
    def misses(one: RejectedOffer) -> tuple[object, ...]:
        offer = one.offer
        missing = check.distance(offer, estimates.estimate(offer))
        return missing, offer.rate, offer.backend, offer.region, offer.instance_type

    return min(rejected, key=misses, default=None)
