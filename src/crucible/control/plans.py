"""Plans: where a job would run, what that costs, and the exact call that would be sent. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from crucible.backends.base import MachineOrder, Slots
from crucible.control.orders import Orders
from crucible.control.places import Place, Places
from crucible.control.views import View, iso, offer_view
from crucible.core import elastic, scheduling
from crucible.core.offers import Offer
from crucible.core.places import places_of
from crucible.core.pricing import Segment, machine_cost
from crucible.core.resources import Resources
from crucible.core.spec import JobSpec


@dataclass(frozen=True)
class _Judged:
    """An offer, and why it is none for this job; empty when it is one. `named`: the job would go there."""

    offer: Offer
    why: str
    named: bool


class Plans:
    def __init__(self, places: Places, orders: Orders, deployment: str) -> None:
        self._places = places
        self._orders = orders
        self._deployment = deployment

    def of(self, spec: JobSpec, now: float) -> View:
        """Offers of every connected place, best first, and those that are none with the reason.

        `chosen` is what the first of the job's places that can would be asked for now; None: the job would wait.
        Raises as a submission does, for an unknown place or tier and for more than any of its places has.
        """
        need = self._places.check(spec)
        judged = list(self._judged(spec, need))
        fitting = sorted((one for one in judged if not one.why), key=lambda one: _rank(one, places_of(spec)))
        chosen = next((one.offer for one in fitting if one.named), None)
        return {
            "need": need.model_dump(),
            "places": list(places_of(spec)),
            "chosen": None if chosen is None else self._chosen(chosen, need, spec, now),
            "offers": [{**self._priced(one.offer, need, spec), "named": one.named} for one in fitting],
            "rejected": [{**offer_view(one.offer), "why": one.why} for one in judged if one.why],
        }

    def _judged(self, spec: JobSpec, need: Resources) -> Iterator[_Judged]:
        wanted = places_of(spec)
        for name in self._places.names():
            counted = self._places.backend(name).capabilities.slots is Slots.COUNTED
            for offer in self._places.offers(name):
                if counted:
                    why = scheduling.why_never(need, offer.capacity) or offer.why_not
                else:
                    why = elastic.why_not(elastic.Sought(need, spec.market, spec.regions), offer)
                yield _Judged(offer, why, name in wanted)

    def _chosen(self, offer: Offer, need: Resources, spec: JobSpec, now: float) -> View:
        """With the call, for a machine whose id stands for the one that it would get."""
        place = self._place(offer)
        shared = place.backend.capabilities.shared_machines
        ends_at = None if shared else now + self._orders.life(place, need, spec.grace_seconds)
        order = MachineOrder(self._orders.machine_id(), self._deployment, offer, ends_at)
        return {**self._priced(offer, need, spec), "call": asdict(place.backend.call(order)), "ends_at": iso(ends_at)}

    def _priced(self, offer: Offer, need: Resources, spec: JobSpec) -> View:
        """`most_micros`: what a machine of its own costs if it lives until its hard end; for one attempt."""
        place = self._place(offer)
        if place.backend.capabilities.shared_machines:
            return {**offer_view(offer), "most_micros": None if offer.rate else 0}
        life = self._orders.life(place, need, spec.grace_seconds)
        return {**offer_view(offer), "most_micros": machine_cost([Segment(0.0, life, offer.rate)], offer.billing, life)}

    def _place(self, offer: Offer) -> Place:
        return Place(self._places.backend(offer.backend), offer)


def _rank(one: _Judged, places: tuple[str, ...]) -> tuple[object, ...]:
    """The job's own places in their order, then the others; cheapest first."""
    at = places.index(one.offer.backend) if one.named else len(places)
    return at, one.offer.rate, one.offer.startup_seconds, one.offer.region, one.offer.instance_type
