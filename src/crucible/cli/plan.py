"""`crucible plan` and `run --dry-run`: where a job would run, for how much, and the call that would be sent."""

from __future__ import annotations

import json
from collections.abc import Iterable

from crucible.cli.session import Session
from crucible.cli.words import dollars
from crucible.client.placeviews import OfferView, PlannedView, PlanView
from crucible.core.resources import format_duration, format_memory
from crucible.core.spec import JobSpec


def show_plan(session: Session, spec: JobSpec, *, call: bool) -> int:
    """Prints the plan; with `call` also what would be sent to the place."""
    with session.api() as api:
        plan = api.plan(spec)
    if session.out.as_json:
        session.out.json(plan.as_json())
    elif session.out.quiet:
        session.out.data(plan.chosen.backend if plan.chosen else "")
    else:
        _print(session, plan, call=call)
    return 0


def _print(session: Session, plan: PlanView, *, call: bool) -> None:
    heads = ("", "PLACE", "TYPE", "REGION", "MARKET", "SIZE", "PRICE", "AT MOST", "STARTS IN")
    shown = _best_of_each(plan.offers)
    session.out.table(heads, [_row(offer, plan) for offer in shown])
    if len(plan.offers) > len(shown):
        session.out.say(f"The same in other regions: {len(plan.offers) - len(shown)} more offers; --json has all.")
    for place, offers in _by_place(plan.rejected).items():
        several = f"{len(offers)} offers of {place} are" if len(offers) > 1 else f"An offer of {place} is"
        session.out.say(f"{several} none for it: it {offers[0].why}.")
    if plan.chosen is None:
        session.out.say(f"Nothing at {', '.join(plan.places)} can hold it just now: the job would wait.")
    elif call:
        session.out.data(json.dumps(plan.chosen.call, indent=2, sort_keys=True))
    session.out.say("Nothing was submitted.")


def _row(offer: PlannedView, plan: PlanView) -> tuple[str, ...]:
    chosen = plan.chosen is not None and _kind(offer) == _kind(plan.chosen)
    has = offer.capacity
    size = f"{has.cpus:g} CPUs, {format_memory(has.memory_bytes)}"
    size += f", {len(has.gpus)} x {has.gpu_name or 'GPU'}" if has.gpus else ""
    most = "" if offer.most_micros is None else dollars(offer.most_micros) if offer.most_micros else "free"
    return (
        "→" if chosen else "" if offer.named else "·",
        offer.backend,
        offer.instance_type,
        offer.region,
        offer.market.value,
        size,
        f"{dollars(offer.rate_micros_per_hour)}/h" if offer.rate_micros_per_hour else "free",
        most,
        format_duration(offer.startup_seconds + offer.wait_seconds),
    )


def _kind(offer: OfferView) -> tuple[str, ...]:
    return offer.backend, offer.region, offer.instance_type, offer.market.value


def _best_of_each(offers: Iterable[PlannedView]) -> list[PlannedView]:
    """Of each type at a place the first, which is the cheapest."""
    found: dict[tuple[str, ...], PlannedView] = {}
    for offer in offers:
        found.setdefault((offer.backend, offer.instance_type, offer.market.value), offer)
    return list(found.values())


def _by_place(rejected: Iterable[OfferView]) -> dict[str, list[OfferView]]:
    found: dict[str, list[OfferView]] = {}
    for offer in rejected:
        found.setdefault(offer.backend, []).append(offer)
    return found
