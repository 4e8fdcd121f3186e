"""`crucible plan` and `run --dry-run`: what a program needs, where it would run, for how much, and by which call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from crucible.cli.compute.predictions import accuracy_words
from crucible.cli.output.format import dollars, unconnected
from crucible.cli.session import Session
from crucible.core.compute.budget import RAISE_IT
from crucible.core.compute.resources import format_duration, format_memory
from crucible.core.errors import NoCapacity, RefusedByPolicy
from crucible.core.routing.plan_request import PlanRequest
from crucible.core.routing.profile import GpuNeed
from crucible.core.routing.profile_input import REFERENCE
from crucible.core.routing.roofline import CORES
from crucible.core.views.machines import OfferView
from crucible.core.views.plans import PlannedView, PlanView
from crucible.core.views.profiles import ProfileView

SHOWN = 15
FEW = 5
LEARNED = {
    "Uses": "frameworks",
    "GPU": "gpu",
    "GPU memory": "gpu_memory_gb",
    "Memory": "host_memory_gb",
    "Runs": "runtime_hours",
}
HEADS = ("", "PLACE", "TYPE", "REGION", "MARKET", "SIZE", "TOTAL", "PRICE", "DONE IN", "AVAILABLE", "FIT")


def show_plan(session: Session, request: PlanRequest, *, call: bool) -> int:
    """Prints the plan; with `call` also what would be sent to the place.

    6: nothing that is connected can run it; 7: nothing for what it may cost.
    """
    with session.api() as api:
        plan = api.plan(request)
    if session.out.as_json:
        session.out.json(plan.as_json())
    elif session.out.quiet:
        session.out.data(plan.chosen.backend if plan.chosen else "")
    else:
        print_plan(session, plan, request.limit)
        if call and plan.chosen is not None and plan.chosen.call is not None:
            session.out.data(json.dumps(plan.chosen.call.as_json(), indent=2, sort_keys=True))
        session.out.say("Nothing was submitted.")
    if plan.chosen is not None or plan.waits:
        return 0
    return RefusedByPolicy.exit_code if plan.too_dear else NoCapacity.exit_code


def print_plan(session: Session, plan: PlanView, shown: int = SHOWN) -> None:
    out, offers = session.out, plan.offers[:shown]
    for line in needs(plan):
        out.say(line)
    out.table(HEADS, [_row(offer, plan.chosen) for offer in offers])
    if plan.offers_count > len(offers):
        out.say(f"{plan.offers_count - len(offers)} more offers: --limit, --every-region and --json show them.")
    for line in (*_judged(plan), *_rejected(plan), *_unconnected(offers)):
        out.say(line)
    if plan.prices.note and not all(offer.runnable for offer in offers):
        out.say(plan.prices.note)
    if plan.chosen is None and plan.why:
        out.say(plan.why)


def needs(plan: PlanView) -> Iterator[str]:
    """What was learned of the program, each with the line that shows it."""
    if plan.profile is None:
        return
    for label, name in LEARNED.items():
        words = _said(plan) if plan.hours_said and name == "runtime_hours" else _learned(plan.profile, name)
        if words:
            yield f"{label + ':':12}{words}"
    yield from _experience(plan)
    yield plan.advice
    for question in dict.fromkeys(_questions(plan.profile)):
        yield f"Not known: {question}"
    for note in plan.profile.notes:
        yield f"Note: {note}"


def _experience(plan: PlanView) -> Iterator[str]:
    """What past jobs say of the time that is told, and how good predictions have been."""
    if plan.learned is not None and plan.hours is not None:
        same = f", {plan.learned.same_program} of them of this program" if plan.learned.same_program else ""
        jobs = "1 past job" if plan.learned.jobs == 1 else f"{plan.learned.jobs} past jobs"
        yield f"{'Learned:':12}{plan.learned.factor:.2g} times as long as the code alone says, after {jobs}{same}"
    words = accuracy_words(plan.accuracy)
    if words:
        yield words


def first_lines(plan: PlanView) -> Iterator[str]:
    """The plan in a line or two, for whoever is about to run it."""
    chosen = plan.chosen
    if chosen is None:
        return
    words = [f"{chosen.backend}{' (simulated)' if chosen.simulated else ''}", cost_of(chosen)]
    if chosen.eta_seconds is not None:
        words.append(f"done in about {format_duration(chosen.eta_seconds)}")
    if chosen.paid_seconds is not None:
        words.append(f"ended after {format_duration(chosen.paid_seconds)}, which its max_cost_usd buys")
    yield f"Plan: {', '.join(words)}."
    faster = _much_faster(plan, chosen)
    if faster is not None:
        where, done = f"{faster.backend} {faster.instance_type}", format_duration(faster.eta_seconds or 0)
        yield f"      {where} would be done in {done}, {cost_of(faster)}; `crucible plan` shows all."


def choices(plan: PlanView) -> Iterator[str]:
    """The plan in words, for whoever cannot run it here: standard output belongs to the program."""
    yield from needs(plan)
    for offer in plan.offers[:FEW]:
        done = "" if offer.eta_seconds is None else f", done in {format_duration(offer.eta_seconds)}"
        yield f"○ {offer.backend} {offer.instance_type} in {offer.region}: {cost_of(offer)}{done}"
    if plan.offers_count > FEW:
        yield f"{plan.offers_count - FEW} more offers: `crucible plan` shows them."
    yield from (*_rejected(plan), *_unconnected(plan.offers[:FEW]))


def cost_of(offer: PlannedView) -> str:
    if not offer.rate_micros_per_hour:
        return "free"
    if offer.total_micros is None:
        return f"{dollars(offer.rate_micros_per_hour)}/h"
    return f"{dollars(offer.total_micros)} in all"


def _much_faster(plan: PlanView, chosen: PlannedView) -> PlannedView | None:
    """The best other offer that takes less than half as long."""
    if chosen.eta_seconds is None:
        return None
    return next((o for o in plan.offers if o.eta_seconds is not None and o.eta_seconds < chosen.eta_seconds / 2), None)


def _learned(profile: ProfileView, name: str) -> str:
    value = getattr(profile, name)
    if not value:
        return ""
    shown = _value(name, value, profile)
    sure = profile.confidence.get(name, "")
    assumed = ", assumed" if name in profile.assumed else ""
    at = next((f"{line.file}:{line.line}" for line in profile.evidence.get(name, ())), "")
    return f"{shown} ({', '.join(part for part in (f'{sure} confidence{assumed}' if sure else '', at) if part)})"


def _said(plan: PlanView) -> str:
    return f"{format_duration((plan.hours or 0) * 3600)}{f' on {plan.hours_on}' if plan.hours_on else ''}, as you say"


def _value(name: str, value: Any, profile: ProfileView) -> str:
    if name in ("gpu_memory_gb", "host_memory_gb"):
        return f"{value:.3g} GB"
    if name == "runtime_hours":
        on = f"{CORES} processors" if profile.gpu is GpuNeed.NONE else f"one {REFERENCE}"
        return f"about {format_duration(value * 3600)} on {on}"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _questions(profile: ProfileView) -> Iterator[str]:
    asked = profile.unknown
    for name in ("gpu", "gpus", "gpu_memory_gb", "host_memory_gb", "runtime_hours"):
        if name in asked:
            yield asked[name]


def _row(offer: PlannedView, chosen: PlannedView | None) -> tuple[str, ...]:
    has = offer.capacity
    size = f"{has.cpus:g} CPUs, {format_memory(has.memory_bytes)}"
    size += f", {len(has.gpus)} x {has.gpu_name or 'GPU'}" if has.gpus else ""
    price = offer.rate_micros_per_hour
    return (
        "→" if chosen is not None and _kind(offer) == _kind(chosen) else "" if offer.runnable else "○",
        offer.backend,
        offer.instance_type,
        offer.region,
        offer.market.value,
        size,
        "free" if not price else "?" if offer.total_micros is None else dollars(offer.total_micros),
        f"{dollars(price)}/h" if price else "free",
        "?" if offer.eta_seconds is None else format_duration(offer.eta_seconds),
        offer.availability if offer.runnable else "not connected" if not offer.simulated else "simulated",
        offer.fit,
    )


def _judged(plan: PlanView) -> Iterator[str]:
    """What speaks for and against the one that is chosen."""
    if plan.chosen is not None:
        for mark, words in (("+", plan.chosen.pros), ("-", plan.chosen.cons)):
            yield from (f"{mark} {word}" for word in words)


def _rejected(plan: PlanView) -> Iterator[str]:
    """Yield why offers of connected backends do not fit, and how many of the others do not."""
    here = [offer for offer in plan.rejected if offer.runnable]
    for place in dict.fromkeys(offer.backend for offer in here):
        alike = [offer for offer in here if offer.backend == place]
        count = sum(offer.alike for offer in alike)
        several = f"{count} offers of {place} do" if count > 1 else f"1 offer of {place} does"
        yield f"{several} not fit: it {alike[0].why}."
    more = plan.rejected_count - sum(offer.alike for offer in here)
    if more:
        yield f"{more} offers of other providers do not fit; --json says why."


def _unconnected(offers: Iterable[PlannedView]) -> Iterator[str]:
    return unconnected((offer.backend, offer.why) for offer in offers if not offer.runnable and offer.why)


def _kind(offer: OfferView) -> tuple[str, ...]:
    return offer.backend, offer.region, offer.instance_type, offer.market.value


def confirm_cost(session: Session, plan: PlanView, *, yes: bool) -> bool:
    """Say where the job goes, and ask before more is spent than the setting `ask_above` allows.

    Raises NoCapacity, with the plan, for a job that nothing that is connected can run; RefusedByPolicy where only its
    cost speaks against that.
    """
    if plan.chosen is None and not plan.waits:
        for line in choices(plan):
            session.out.say(line)
        if plan.too_dear:
            raise RefusedByPolicy(plan.why or "It may not cost so much.", fix=RAISE_IT, rejected=_reasons(plan))
        raise NoCapacity(plan.why or "No place can run it.", fix=_fix(plan), rejected=_reasons(plan))
    for line in first_lines(plan):
        session.out.say(line)
    chosen, limit = plan.chosen, session.settings.ask_above.value
    if chosen is None or spent(chosen) <= limit * 1e6:
        return True
    why = f"It may cost {dollars(spent(chosen))} at {chosen.backend}, more than ${limit:g}: the setting ask_above."
    return session.confirm(f"Run it for {cost_of(chosen)}?", yes=yes, why=why)


def spent(offer: PlannedView) -> int:
    """Micro-dollars: what all of it costs, or where nobody knows how long it takes what it costs at most.

    Play money counts where it is known how much.
    """
    if offer.total_micros is not None:
        return offer.total_micros
    return 0 if offer.simulated else offer.most_micros or offer.rate_micros_per_hour


def _fix(plan: PlanView) -> str:
    best = next((offer for offer in plan.offers if offer.why), None)
    if best is not None:
        return f"{best.why}. Or name a place all the same: --backend local."
    return "Ask for less (--gpu-memory, --gpus, --tier, --max-cost, --deadline), or connect a larger place."


def _reasons(plan: PlanView) -> list[dict[str, str]]:
    return [{"backend": offer.backend, "why": offer.why or ""} for offer in plan.rejected]
