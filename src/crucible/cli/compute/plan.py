"""Output of `crucible plan` and `run --dry-run`: needs, offers, cost; and the cost confirmation of `run`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from crucible.cli.compute.predictions import format_accuracy
from crucible.cli.context import CommandContext
from crucible.cli.output.format import format_dollars, format_unconnected
from crucible.client.payload import Payload
from crucible.core.compute.budget import RAISE_IT
from crucible.core.compute.offers import Market
from crucible.core.compute.resources import format_duration, format_memory
from crucible.core.errors import NoCapacity, RefusedByPolicy
from crucible.core.routing.plan_request import PlanRequest
from crucible.core.routing.profile import GpuNeed
from crucible.core.routing.profile_input import REFERENCE
from crucible.core.routing.rejections import NOT_SPOT
from crucible.core.routing.roofline import CORES
from crucible.core.views.compute import OfferView
from crucible.core.views.plans import PlannedView, PlanView
from crucible.core.views.profiles import ProfileView

SHOWN = 15
SHOWN_BEFORE_RUN = 5
PROFILE_LABELS = {
    "Uses": "frameworks",
    "GPU": "gpu",
    "GPU memory": "gpu_memory_gb",
    "Memory": "host_memory_gb",
    "Runs": "runtime_hours",
}
HEADS = ("", "BACKEND", "TYPE", "REGION", "MARKET", "SIZE", "TOTAL", "PRICE", "DONE IN", "AVAILABLE", "FIT")


def show_plan(cli: CommandContext, request: PlanRequest, payload: Payload | None = None) -> int:
    """Print the plan; return the exit code. With a payload print its files, and the launch request for the backend.

    6: no connected backend can run it; 7: only its cost limit rules offers out, or the user may not use them.
    """
    with cli.api() as api:
        plan = api.plan(request)
    if cli.out.as_json:
        cli.out.json({**plan.as_json(), **(_files_json(payload) if payload is not None else {})})
    elif cli.out.quiet:
        cli.out.data(plan.chosen.backend if plan.chosen else "")
    else:
        print_plan(cli, plan, request, request.limit)
        for line in format_files(payload) if payload is not None else ():
            cli.out.say(line)
        if payload is not None and plan.chosen is not None and plan.chosen.call is not None:
            cli.out.data(json.dumps(plan.chosen.call.as_json(), indent=2, sort_keys=True))
        cli.out.say("Nothing was submitted.")
    if plan.chosen is not None or plan.waits:
        return 0
    return RefusedByPolicy.exit_code if plan.too_dear or _is_refused(plan) else NoCapacity.exit_code


def format_files(payload: Payload) -> Iterator[str]:
    """Yield each file that would be sent, with its size, and what would not be."""
    for entry in payload.entries or ():
        yield f"{format_memory(entry.size):>10}  {entry.name}"
    if payload.entries is not None:
        yield f"To send: {format_sent(payload)}"
    for text in (*payload.left_out, *payload.notes):
        yield f"Note: {text}"


def format_sent(payload: Payload) -> str:
    """Return how many files are sent, how large they are, and what they are."""
    entries = payload.entries or ()
    what = f": {payload.sent}" if payload.sent else ""
    where = f"; it starts in {payload.workdir}" if payload.workdir else ""
    count = "1 file" if len(entries) == 1 else f"{len(entries):,} files"
    return f"{count} ({format_memory(sum(entry.size for entry in entries))}){what}{where}"


def _files_json(payload: Payload) -> dict[str, object]:
    files = [{"name": entry.name, "size": entry.size} for entry in payload.entries or ()]
    return {"files": files, "left_out": list(payload.left_out)}


def print_plan(cli: CommandContext, plan: PlanView, request: PlanRequest, limit: int = SHOWN) -> None:
    out, offers = cli.out, plan.offers[:limit]
    for line in format_profile(plan):
        out.say(line)
    out.table(HEADS, [_row(offer, plan.chosen) for offer in offers])
    if plan.offers_count > len(offers):
        out.say(f"{plan.offers_count - len(offers)} more offers: --limit, --every-region and --json show them.")
    for line in (*_pros_and_cons(plan), *format_fallback(plan, request)):
        out.say(line)
    for line in (*_format_rejected(plan), *_format_unconnected_backends(offers)):
        out.say(line)
    if plan.prices.note and not all(offer.runnable for offer in offers):
        out.say(plan.prices.note)
    if plan.chosen is None and plan.why:
        out.say(plan.why)


def format_profile(plan: PlanView) -> Iterator[str]:
    """Yield what analysis concluded about the program, each with the line of code that shows it."""
    if plan.profile is None:
        return
    for label, name in PROFILE_LABELS.items():
        words = (
            _format_stated_runtime(plan)
            if plan.hours_said and name == "runtime_hours"
            else _format_conclusion(plan.profile, name)
        )
        if words:
            yield f"{label + ':':12}{words}"
    yield from _format_corrections(plan)
    yield plan.advice
    for question in dict.fromkeys(_questions(plan.profile)):
        yield f"Not known: {question}"
    for note in plan.profile.notes:
        yield f"Note: {note}"


def _format_corrections(plan: PlanView) -> Iterator[str]:
    """Yield how past jobs correct the run time, and how accurate predictions have been."""
    if plan.learned is not None and plan.hours is not None:
        same = f", {plan.learned.same_program} of them of this program" if plan.learned.same_program else ""
        jobs = "1 past job" if plan.learned.jobs == 1 else f"{plan.learned.jobs} past jobs"
        yield f"{'Learned:':12}{plan.learned.factor:.2g} times as long as the code alone says, after {jobs}{same}"
    words = format_accuracy(plan.accuracy)
    if words:
        yield words


def format_choice(plan: PlanView) -> Iterator[str]:
    """Yield the chosen offer in a line or two, for `run`."""
    chosen = plan.chosen
    if chosen is None:
        return
    words = [f"{chosen.backend}{' (simulated)' if chosen.simulated else ''}", format_total_cost(chosen)]
    if chosen.eta_seconds is not None:
        words.append(f"done in about {format_duration(chosen.eta_seconds)}")
    if chosen.paid_seconds is not None:
        words.append(f"ended after {format_duration(chosen.paid_seconds)}, which its max_cost_usd buys")
    yield f"Plan: {', '.join(words)}."
    faster = _much_faster(plan, chosen)
    if faster is not None:
        where, done = f"{faster.backend} {faster.instance_type}", format_duration(faster.eta_seconds or 0)
        yield f"      {where} would be done in {done}, {format_total_cost(faster)}; `crucible plan` shows all."


def format_fallback(plan: PlanView, request: PlanRequest) -> Iterator[str]:
    """Yield what becomes of a job on spot if no spot machine is available."""
    chosen, fallback = plan.chosen, plan.fallback
    if fallback is not None:
        where = f"{fallback.backend} {fallback.instance_type} in {fallback.region}"
        yield f"If no spot machine is available, it may run on demand: {where}, {format_total_cost(fallback)}."
    elif chosen is None or not chosen.rate_micros_per_hour:
        return
    elif chosen.market is not Market.SPOT and request.spot_fallback:
        yield "No spot machine can run it now, so it runs on demand."
    elif chosen.market is Market.SPOT and not request.may_fall_back and len(request.named_backends) < 2:
        yield "If no spot machine is available, it waits for one; --spot-fallback lets it run on demand."


def format_alternatives(plan: PlanView) -> Iterator[str]:
    """Yield needs and offers for a job that cannot run. On standard error: standard output belongs to the program."""
    yield from format_profile(plan)
    for offer in plan.offers[:SHOWN_BEFORE_RUN]:
        done = "" if offer.eta_seconds is None else f", done in {format_duration(offer.eta_seconds)}"
        yield f"○ {offer.backend} {offer.instance_type} in {offer.region}: {format_total_cost(offer)}{done}"
    if plan.offers_count > SHOWN_BEFORE_RUN:
        yield f"{plan.offers_count - SHOWN_BEFORE_RUN} more offers: `crucible plan` shows them."
    yield from (*_format_rejected(plan), *_format_unconnected_backends(plan.offers[:SHOWN_BEFORE_RUN]))


def format_total_cost(offer: PlannedView) -> str:
    if not offer.rate_micros_per_hour:
        return "free"
    if offer.total_micros is None:
        return f"{format_dollars(offer.rate_micros_per_hour)}/h"
    return f"{format_dollars(offer.total_micros)} in all"


def _much_faster(plan: PlanView, chosen: PlannedView) -> PlannedView | None:
    """Return the best other offer that takes less than half as long, or None."""
    if chosen.eta_seconds is None:
        return None
    return next((o for o in plan.offers if o.eta_seconds is not None and o.eta_seconds < chosen.eta_seconds / 2), None)


def _format_conclusion(profile: ProfileView, name: str) -> str:
    value = getattr(profile, name)
    if not value:
        return ""
    text = _format_value(name, value, profile)
    confidence = profile.confidence.get(name, "")
    assumed = ", assumed" if name in profile.assumed else ""
    location = next((f"{line.file}:{line.line}" for line in profile.evidence.get(name, ())), "")
    parts = (f"{confidence} confidence{assumed}" if confidence else "", location)
    return f"{text} ({', '.join(part for part in parts if part)})"


def _format_stated_runtime(plan: PlanView) -> str:
    return f"{format_duration((plan.hours or 0) * 3600)}{f' on {plan.hours_on}' if plan.hours_on else ''}, as you say"


def _format_value(name: str, value: Any, profile: ProfileView) -> str:
    if name in ("gpu_memory_gb", "host_memory_gb"):
        return f"{value:.3g} GB"
    if name == "runtime_hours":
        on = f"{CORES} processors" if profile.gpu is GpuNeed.NONE else f"one {REFERENCE}"
        return f"about {format_duration(value * 3600)} on {on}"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _questions(profile: ProfileView) -> Iterator[str]:
    questions = profile.unknown
    for name in ("gpu", "gpus", "gpu_memory_gb", "host_memory_gb", "runtime_hours"):
        if name in questions:
            yield questions[name]


def _row(offer: PlannedView, chosen: PlannedView | None) -> tuple[str, ...]:
    has = offer.capacity
    size = f"{has.cpus:g} CPUs, {format_memory(has.memory_bytes)}"
    size += f", {len(has.gpus)} x {has.gpu_name or 'GPU'}" if has.gpus else ""
    price = offer.rate_micros_per_hour
    return (
        "→" if chosen is not None and _offer_key(offer) == _offer_key(chosen) else "" if offer.runnable else "○",
        offer.backend,
        offer.instance_type,
        offer.region,
        offer.market.value,
        size,
        "free" if not price else "?" if offer.total_micros is None else format_dollars(offer.total_micros),
        f"{format_dollars(price)}/h" if price else "free",
        "?" if offer.eta_seconds is None else format_duration(offer.eta_seconds),
        offer.availability if offer.runnable else "not connected" if not offer.simulated else "simulated",
        offer.fit,
    )


def _pros_and_cons(plan: PlanView) -> Iterator[str]:
    """Yield the pros and cons of the chosen offer."""
    if plan.chosen is not None:
        for mark, words in (("+", plan.chosen.pros), ("-", plan.chosen.cons)):
            yield from (f"{mark} {word}" for word in words)


def _format_rejected(plan: PlanView) -> Iterator[str]:
    """Yield why offers of connected backends were rejected, and how many others were."""
    here = [offer for offer in plan.rejected if offer.runnable]
    for backend in dict.fromkeys(offer.backend for offer in here):
        alike = [offer for offer in here if offer.backend == backend]
        count = sum(offer.alike for offer in alike)
        several = f"{count} offers of {backend} do" if count > 1 else f"1 offer of {backend} does"
        yield f"{several} not fit: it {alike[0].why}."
    refused = {offer.backend: offer for offer in plan.rejected if offer.refused}
    yield from (f"○ {offer.why}" for offer in refused.values())
    more = plan.rejected_count - sum(offer.alike for offer in plan.rejected if offer.runnable or offer.refused)
    if more:
        yield f"{more} offers of other providers do not fit; --json says why."


def _is_refused(plan: PlanView) -> bool:
    """Return whether nothing can run the job because the user may not use the backends that could."""
    why = plan.why or ""
    return any(offer.refused and why.endswith(offer.why or "-") for offer in plan.rejected)


def _format_unconnected_backends(offers: Iterable[PlannedView]) -> Iterator[str]:
    return format_unconnected((offer.backend, offer.why) for offer in offers if not offer.runnable and offer.why)


def _offer_key(offer: OfferView) -> tuple[str, ...]:
    return offer.backend, offer.region, offer.instance_type, offer.market.value


def confirm_cost(cli: CommandContext, plan: PlanView, request: PlanRequest, *, yes: bool) -> bool:
    """Print where the job would run, and ask if it may cost more than the setting `ask_above`.

    Raises NoCapacity if no connected backend can run the job, RefusedByPolicy if only its cost limit rules it out or
    the user may not use the backends.
    """
    if plan.chosen is None and not plan.waits:
        for line in format_alternatives(plan):
            cli.out.say(line)
        if plan.too_dear:
            raise RefusedByPolicy(
                plan.why or "It would cost more than allowed.", fix=RAISE_IT, rejected=_rejections(plan)
            )
        if plan.why and _is_refused(plan):
            raise RefusedByPolicy(plan.why, fix="`crucible backends` lists all backends.", rejected=_rejections(plan))
        raise NoCapacity(plan.why or "No backend can run it.", fix=_suggest_fix(plan), rejected=_rejections(plan))
    for line in (*format_choice(plan), *format_fallback(plan, request)):
        cli.out.say(line)
    chosen, fallback, limit = plan.chosen, plan.fallback, cli.settings.ask_above.value
    if chosen is None:
        if plan.why:
            cli.out.say(plan.why)
        return True
    dearest = max((chosen, fallback or chosen), key=expected_cost_micros)
    if expected_cost_micros(dearest) <= limit * 1e6:
        return True
    why = (
        f"It may cost {format_dollars(expected_cost_micros(dearest))} at {dearest.backend}, "
        f"more than ${limit:g} (setting ask_above)."
    )
    instead = f", or {format_total_cost(fallback)} on demand" if fallback else ""
    return cli.confirm(f"Run it for {format_total_cost(chosen)}{instead}?", yes=yes, why=why)


def expected_cost_micros(offer: PlannedView) -> int:
    """Return the cost of the whole job in micro-dollars, or its maximum if the run time is unknown.

    A simulated offer counts with its total, if known, so that the confirmation can be rehearsed.
    """
    if offer.total_micros is not None:
        return offer.total_micros
    return 0 if offer.simulated else offer.most_micros or offer.rate_micros_per_hour


def _suggest_fix(plan: PlanView) -> str:
    best = next((offer for offer in plan.offers if offer.why), None)
    if best is not None and best.why:
        return f"{best.why.removesuffix('.')}. Or choose a backend yourself: --backend local."
    if any(offer.runnable and offer.why == NOT_SPOT for offer in plan.rejected):
        return "Add --spot-fallback."
    return (
        "Relax --cpus, --memory, --gpus, --gpu-memory, --tier, --max-cost or --deadline, or connect a backend with"
        " larger machines."
    )


def _rejections(plan: PlanView) -> list[dict[str, str]]:
    return [{"backend": offer.backend, "why": offer.why or ""} for offer in plan.rejected]
