"""What a plan looks like from outside."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from crucible.catalog import Stock
from crucible.control.views import View, offer_view
from crucible.core.offers import Market
from crucible.core.planrequest import PlanRequest
from crucible.core.pricing import MICROS
from crucible.core.profile import GpuNeed, Profile
from crucible.core.routing.images import image_for
from crucible.core.routing.learned import Learned, gpu_used
from crucible.core.routing.plan import Plan, Ranked, Rejected
from crucible.core.routing.reading import UNREAD
from crucible.core.routing.sizes import tier_for, tier_words
from crucible.core.routing.words import fit
from crucible.core.routing.work import Work

OLD_DAYS = 180
PLACES_NAMED = 3


def understood(profile: Profile | None, work: Work) -> View:
    """What was read of the program, and what follows from that and from what was said."""
    tier = tier_for(work)
    frameworks = (profile or UNREAD).frameworks.value or ()
    compute = work.compute
    return {
        "profile": None if profile is None else profile.as_json(),
        "need": work.need.model_dump(),
        "gpu": work.gpu.value,
        "hours": None if compute is None else round(compute.seconds / 3600, 4),
        "hours_on": None if compute is None or not compute.gpu else compute.gpu,
        "interruptible": work.interruptible,
        "tier": tier.id if tier else None,
        "advice": tier_words(profile or UNREAD, work),
        "image": image_for(frameworks, gpu=work.gpu is not GpuNeed.NONE),
    }


def ranked(one: Ranked) -> View:
    found = one.estimate
    return {
        **offer_view(one.offer).as_json(),
        "hourly_usd": one.offer.rate / MICROS,
        "total_micros": found.total,
        "total_usd": None if found.total is None else round(found.total / MICROS, 4),
        "eta_seconds": found.eta,
        "seconds": found.seconds,
        "transfer_seconds": found.transfer,
        "lost_seconds": found.lost,
        "machine_micros": found.machine,
        "egress_micros": found.egress,
        "storage_micros": found.storage,
        "confidence": found.confidence.value,
        "score": one.score,
        "ceiling_micros_per_hour": one.ceiling,
        "fit": fit(one.work, one.offer),
        "pros": list(one.pros),
        "cons": list(one.cons),
    }


def best_of_each(offers: Iterable[Ranked]) -> list[Ranked]:
    """Of each machine type at a place the best of its regions."""
    found: dict[tuple[object, ...], Ranked] = {}
    for one in offers:
        offer = one.offer
        found.setdefault((offer.backend, offer.instance_type, offer.market, offer.runnable), one)
    return list(found.values())


def learned(found: Learned, jobs: int, work: Work, best: Ranked | None) -> View | None:
    """By how much past jobs correct the time that is told, on the machine that is chosen."""
    if not jobs:
        return None
    correction = found.of(work.compute) if best is None else found.on(gpu_used(work, best.offer))
    return {"jobs": jobs, "same_program": correction.lessons, "factor": round(correction.factor, 4)}


def to_submit(place: Mapping[str, object] | None, request: PlanRequest, sizes: Mapping[str, int]) -> View | None:
    """What a submission has to say to be given this offer, besides what it says already.

    `sizes` is what the machine has to have for it, as that was read of the program.
    """
    if place is None:
        return None
    said: View = {"backend": place["backend"]}
    if request.planned_market is None and place["market"] != Market.ON_DEMAND.value:
        said["market"] = place["market"]
    if request.max_cost_usd is not None:
        said["max_cost_usd"] = request.max_cost_usd
    if sizes:
        said["resources"] = dict(sizes)
    return said


def too_dear(plan: Plan) -> bool:
    """Whether something that is connected could run it, and only for more than it may cost."""
    return any(one.too_dear and one.offer.runnable for one in plan.rejected)


def waiting(plan: Plan, usable: Container[str]) -> View | None:
    """The best offer that would hold it but is not to be had just now, at a place where it might be soon."""
    found = (one.offer for one in plan.elsewhere if one.offer.backend in usable)
    return next((offer_view(offer).as_json() for offer in found), None)


def why_nothing(plan: Plan, waits: View | None, unheard: Container[str]) -> str:
    """`unheard`: backends whose agents could not talk with us."""
    kept = next((one.offer.why_not for one in plan.elsewhere if one.offer.backend in unheard), None)
    if kept is not None:
        return f"Nothing that is connected can run it: {kept}"
    if waits is not None:
        return f"Nothing has room for it just now: {waits['why']}."
    here = [one for one in plan.rejected if one.offer.runnable]
    why = f"it {here[0].why}" if here else "nothing is offered there just now"
    if plan.elsewhere:
        names = list(dict.fromkeys(one.offer.backend for one in plan.elsewhere))
        more = f" and {len(names) - PLACES_NAMED} more" if len(names) > PLACES_NAMED else ""
        return f"Nothing that is connected can run it: {why}. It fits at {', '.join(names[:PLACES_NAMED])}{more}."
    if plan.nearest is not None:
        near = plan.nearest
        called = f"{near.offer.backend} {near.offer.instance_type}"
        return f"No offer at all fits. The nearest is {called}: it {near.why}."
    return "Nothing is offered anywhere."


def rejected(plan: Plan, limit: int) -> list[View]:
    """Of each place and reason one offer, with how many are alike."""
    alike: dict[tuple[str, str], list[Rejected]] = {}
    for one in plan.rejected:
        alike.setdefault((one.offer.backend, _reason(one)), []).append(one)
    shown = list(alike.values())[:limit]
    return [{**offer_view(group[0].offer).as_json(), "why": group[0].why, "alike": len(group)} for group in shown]


def nearest(plan: Plan) -> View | None:
    return None if plan.nearest is None else {**offer_view(plan.nearest.offer).as_json(), "why": plan.nearest.why}


def age_note(stock: Stock) -> str | None:
    """A word on prices that may have changed since they were read."""
    days = stock.oldest_days
    if days is None or days <= OLD_DAYS:
        return None
    return (
        f"Prices of providers are of {stock.oldest} to {stock.newest}, up to {days} days old; "
        "`crucible catalog refresh PROVIDER` asks for those of today."
    )


def _reason(one: Rejected) -> str:
    """Without what differs from machine to machine."""
    return one.why.replace(one.offer.instance_type, "").replace(one.offer.region, "")
