"""What a plan looks like from outside."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from crucible.catalog import Stock
from crucible.control.jobs.views import offer_view
from crucible.core.compute.offers import Market
from crucible.core.compute.pricing import MICROS
from crucible.core.routing.measured_speed import CorrectedSpeeds, gpu_used
from crucible.core.routing.plan import Plan, RankedOffer, RejectedOffer
from crucible.core.routing.plan_request import PlanRequest
from crucible.core.routing.pros_and_cons import fit
from crucible.core.routing.workload import Workload
from crucible.core.views.compute import OfferView
from crucible.core.views.plans import LearnedView, PlannedView, RejectedView, SizesView, SubmissionView

OLD_DAYS = 180
MAX_NAMED = 3


def planned_view(
    one: RankedOffer, *, simulated: bool, most_micros: int | None, paid_seconds: float | None
) -> PlannedView:
    found = one.estimate
    return PlannedView(
        **dict(offer_view(one.offer)),
        simulated=simulated,
        hourly_usd=one.offer.rate / MICROS,
        total_micros=found.total,
        total_usd=None if found.total is None else round(found.total / MICROS, 4),
        eta_seconds=found.eta,
        seconds=found.seconds,
        transfer_seconds=found.transfer,
        lost_seconds=found.lost,
        machine_micros=found.machine,
        egress_micros=found.egress,
        storage_micros=found.storage,
        most_micros=most_micros,
        paid_seconds=paid_seconds,
        confidence=found.confidence,
        score=one.score,
        ceiling_micros_per_hour=one.ceiling,
        fit=fit(one.work, one.offer),
        pros=tuple(one.pros),
        cons=tuple(one.cons),
    )


def best_of_each_type(offers: Iterable[RankedOffer]) -> list[RankedOffer]:
    """Of each machine type at a place the best of its regions."""
    found: dict[tuple[object, ...], RankedOffer] = {}
    for one in offers:
        offer = one.offer
        found.setdefault((offer.backend, offer.instance_type, offer.market, offer.runnable), one)
    return list(found.values())


def learned_view(found: CorrectedSpeeds, jobs: int, work: Workload, best: RankedOffer | None) -> LearnedView | None:
    """By how much past jobs correct the time that is told, on the machine that is chosen."""
    if not jobs:
        return None
    correction = found.correction_for(work.compute) if best is None else found.correction_on(gpu_used(work, best.offer))
    return LearnedView(jobs=jobs, same_program=correction.runs, factor=round(correction.factor, 4))


def submission_view(place: OfferView | None, request: PlanRequest, sizes: Mapping[str, int]) -> SubmissionView | None:
    if place is None:
        return None
    said: dict[str, Any] = {"backend": place.backend}
    if request.planned_market is None and place.market is not Market.ON_DEMAND:
        said["market"] = place.market
    if request.max_cost_usd is not None:
        said["max_cost_usd"] = request.max_cost_usd
    if sizes:
        said["resources"] = SizesView(**sizes)
    return SubmissionView(**said)


def exceeds_max_cost(plan: Plan) -> bool:
    """Whether something that is connected could run it, and only for more than it may cost."""
    return any(one.over_budget and one.offer.runnable for one in plan.rejected)


def waiting_offer(plan: Plan, usable: Container[str]) -> OfferView | None:
    """The best offer that would hold it but is not to be had just now, at a place where it might be soon."""
    found = (one.offer for one in plan.unconnected if one.offer.backend in usable)
    return next((offer_view(offer) for offer in found), None)


def why_no_offer(plan: Plan, waits: OfferView | None, unheard: Container[str]) -> str:
    """`unheard`: backends whose agents could not talk with us."""
    kept = next((one.offer.why_not for one in plan.unconnected if one.offer.backend in unheard), None)
    if kept is not None:
        return f"Nothing that is connected can run it: {kept}"
    if waits is not None:
        return f"Nothing has room for it just now: {waits.why}."
    here = [one for one in plan.rejected if one.offer.runnable]
    why = f"it {here[0].why}" if here else "nothing is offered there just now"
    if plan.unconnected:
        names = list(dict.fromkeys(one.offer.backend for one in plan.unconnected))
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        return f"Nothing that is connected can run it: {why}. It fits at {', '.join(names[:MAX_NAMED])}{more}."
    if plan.nearest is not None:
        near = plan.nearest
        called = f"{near.offer.backend} {near.offer.instance_type}"
        return f"No offer at all fits. The nearest is {called}: it {near.why}."
    return "Nothing is offered anywhere."


def rejected_views(plan: Plan, limit: int) -> tuple[RejectedView, ...]:
    """Of each place and reason one offer, with how many are alike."""
    alike: dict[tuple[str, str], list[RejectedOffer]] = {}
    for one in plan.rejected:
        alike.setdefault((one.offer.backend, _reason(one)), []).append(one)
    shown = list(alike.values())[:limit]
    return tuple(RejectedView(**dict(_rejected(group[0])), alike=len(group)) for group in shown)


def nearest_view(plan: Plan) -> OfferView | None:
    return None if plan.nearest is None else _rejected(plan.nearest)


def _rejected(one: RejectedOffer) -> OfferView:
    return offer_view(one.offer).model_copy(update={"why": one.why})


def old_prices_note(stock: Stock) -> str | None:
    """A word on prices that may have changed since they were read."""
    days = stock.oldest_days
    if days is None or days <= OLD_DAYS:
        return None
    return (
        f"Prices of providers are of {stock.oldest} to {stock.newest}, up to {days} days old; "
        "`crucible catalog refresh PROVIDER` asks for those of today."
    )


def _reason(one: RejectedOffer) -> str:
    """Without what differs from machine to machine."""
    return one.why.replace(one.offer.instance_type, "").replace(one.offer.region, "")
