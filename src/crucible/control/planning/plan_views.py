"""Views of plans, and the sentences that explain them."""

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
from crucible.core.routing.rejections import NOT_SPOT
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
    """Return the best region of each instance type, backend and market. `offers` come best first."""
    found: dict[tuple[object, ...], RankedOffer] = {}
    for one in offers:
        offer = one.offer
        found.setdefault((offer.backend, offer.instance_type, offer.market, offer.runnable), one)
    return list(found.values())


def learned_view(found: CorrectedSpeeds, jobs: int, work: Workload, best: RankedOffer | None) -> LearnedView | None:
    """Return by how much past jobs correct the predicted time on the chosen machine; None without past jobs."""
    if not jobs:
        return None
    correction = found.correction_for(work.compute) if best is None else found.correction_on(gpu_used(work, best.offer))
    return LearnedView(jobs=jobs, same_program=correction.runs, factor=round(correction.factor, 4))


def submission_view(
    offer: OfferView | None, request: PlanRequest, sizes: Mapping[str, int], *, may_fall_back: bool
) -> SubmissionView | None:
    """Return the fields to add to a submission in order to get this offer.

    With `may_fall_back`, a job for which the plan chose spot may run on demand if no spot machine is available.
    """
    if offer is None:
        return None
    fields: dict[str, Any] = {"backend": offer.backend}
    if request.planned_market is None and offer.market is not Market.ON_DEMAND:
        fields["market"] = offer.market
        if may_fall_back:
            fields["spot_fallback"] = True
    if request.max_cost_usd is not None:
        fields["max_cost_usd"] = request.max_cost_usd
    if sizes:
        fields["resources"] = SizesView(**sizes)
    return SubmissionView(**fields)


def exceeds_max_cost(plan: Plan) -> bool:
    """Return whether a connected backend could run the job, but only above its max_cost_usd."""
    return any(one.over_budget and one.offer.runnable for one in plan.rejected)


def waiting_offer(plan: Plan, usable: Container[str]) -> OfferView | None:
    """Return the best offer of a usable backend that would hold the job and has no capacity now."""
    found = (one.offer for one in plan.unconnected if one.offer.backend in usable)
    return next((offer_view(offer) for offer in found), None)


def why_no_offer(plan: Plan, waits: OfferView | None, unreachable: Container[str], refused: str) -> str:
    """Return why nothing can run the job.

    `unreachable`: backends whose agents cannot reach this server. `refused`: why the user may not use the backends.
    """
    kept = next((one.offer.why_not for one in plan.unconnected if one.offer.backend in unreachable), None)
    if waits is None and refused:
        return f"No connected backend can run it: {refused}"
    if kept is not None:
        return f"No connected backend can run it: {kept}"
    if waits is not None:
        instead = " It waits for spot; --spot-fallback would let it run on demand." if _lacks_only_spot(plan) else ""
        return f"No capacity for it at the moment: {waits.why}.{instead}"
    here = [one for one in plan.rejected if one.offer.runnable]
    why = f"it {here[0].why}" if here else "none has an offer at the moment"
    if plan.unconnected:
        names = list(dict.fromkeys(one.offer.backend for one in plan.unconnected))
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        return f"No connected backend can run it: {why}. It would fit on {', '.join(names[:MAX_NAMED])}{more}."
    if plan.nearest is not None:
        near = plan.nearest
        name = f"{near.offer.backend} {near.offer.instance_type}"
        return f"No offer fits. The nearest is {name}: it {near.why}."
    return "No backend has any offer."


def _lacks_only_spot(plan: Plan) -> bool:
    """Return whether a machine could run the job now, were it not on demand."""
    return any(one.why == NOT_SPOT and one.offer.runnable for one in plan.rejected)


def rejected_views(plan: Plan, limit: int) -> tuple[RejectedView, ...]:
    """Return one rejected offer for each backend and reason, with how many are alike."""
    alike: dict[tuple[str, str], list[RejectedOffer]] = {}
    for one in plan.rejected:
        alike.setdefault((one.offer.backend, _reason(one)), []).append(one)
    shown = list(alike.values())[:limit]
    return tuple(_rejected_view(group) for group in shown)


def _rejected_view(alike: list[RejectedOffer]) -> RejectedView:
    view = RejectedView(**dict(_rejected(alike[0])), alike=len(alike))
    return view.model_copy(update={"refused": True}) if alike[0].refused else view


def nearest_view(plan: Plan) -> OfferView | None:
    return None if plan.nearest is None else _rejected(plan.nearest)


def _rejected(one: RejectedOffer) -> OfferView:
    return offer_view(one.offer).model_copy(update={"why": one.why})


def old_prices_note(stock: Stock) -> str | None:
    """Return a note on prices that are old enough to have changed, or None."""
    days = stock.oldest_days
    if days is None or days <= OLD_DAYS:
        return None
    return (
        f"Prices of providers date from {stock.oldest} to {stock.newest}, up to {days} days old; "
        "`crucible catalog refresh PROVIDER` fetches current ones."
    )


def _reason(one: RejectedOffer) -> str:
    """Return the reason without what differs from machine to machine, so that like ones can be counted."""
    return one.why.replace(one.offer.instance_type, "").replace(one.offer.region, "")
