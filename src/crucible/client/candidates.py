"""Which of a server's places a job goes to, and in which order: a pure function of what they offer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from crucible.client.placeviews import BackendView, OfferView
from crucible.client.requirements import Preferences, Requirements
from crucible.core import offer_choice, scheduling
from crucible.core.budget import exceeds_budget, usd
from crucible.core.errors import CrucibleError, NoCapacity, RefusedByPolicy, UnknownName
from crucible.core.offers import Availability, Market, Offer
from crucible.core.planrequest import Objective
from crucible.core.pricing import MICROS, forecast
from crucible.core.resources import Resources
from crucible.core.spec import JobSpec
from crucible.core.tiers import effective


@dataclass(frozen=True)
class Candidate:
    """A place that could run the job, with its best offer.

    One that has not said what it offers, and was named all the same, has no offer.
    """

    backend: BackendView
    offer: OfferView | None = None

    @property
    def hourly_usd(self) -> float:
        return self.offer.rate_micros_per_hour / 1e6 if self.offer else 0.0


@dataclass(frozen=True)
class Line:
    """The places of a job, the first choice first, and why others are not among them."""

    places: tuple[Candidate, ...]
    rejected: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(place.backend.name for place in self.places)

    @property
    def is_simulated(self) -> bool:
        return any(place.backend.is_simulated for place in self.places)


def line_up(
    backends: Sequence[BackendView],
    needs: Requirements,
    preferences: Preferences,
    *,
    order: Sequence[str] | None = None,
    regions: tuple[str, ...] = (),
) -> Line:
    """The places that can hold the job. `order` names them one by one; else they are put in order by the aim.

    Among all backends real places come first, and a simulated one is taken only where no real one can hold the job.
    Raises UnknownName, NoCapacity, or RefusedByPolicy when only money speaks against it.
    """
    named = order if order is not None else preferences.allowed_backends
    judged = {
        backend.name: Candidate(backend) if order and not backend.offers else _judge(backend, needs, regions)
        for backend in _wanted(backends, named)
    }
    places = [place for place in judged.values() if isinstance(place, Candidate)]
    rejected = {name: why for name, why in judged.items() if isinstance(why, CrucibleError)}
    if not places:
        raise _nowhere(rejected)
    reasons = {name: error.what for name, error in rejected.items()}
    if order is not None:
        return Line(tuple(places), reasons)
    places.sort(key=lambda place: _rank(place, preferences.optimize_for))
    real = [place for place in places if not place.backend.is_simulated]
    return Line(tuple(real if real and named is None else places), reasons)


def _wanted(backends: Iterable[BackendView], named: Sequence[str] | None) -> list[BackendView]:
    known = {backend.name: backend for backend in backends}
    for name in named or ():
        if name not in known:
            raise UnknownName("backend", name, known, fix="`crucible backends` lists those of the server.")
    return list(known.values()) if named is None else [known[name] for name in named]


def _judge(backend: BackendView, needs: Requirements, regions: tuple[str, ...]) -> Candidate | CrucibleError:
    offers = [OfferView.model_validate(offer) for offer in backend.offers]
    if not offers:
        return NoCapacity(backend.detail or f"{backend.name} offers nothing just now")
    fitting, why = _fitting(backend, offers, needs, regions)
    if not fitting:
        return NoCapacity(why)
    best = min(fitting, key=lambda offer: (not offer.runnable, offer.rate_micros_per_hour))
    why = _too_dear(best.as_offer(), needs)
    return RefusedByPolicy(why) if why else Candidate(backend, best)


def _too_dear(best: Offer, needs: Requirements) -> str:
    if needs.max_cost_usd is None:
        return ""
    hours, most = needs.duration_hours_estimated, round(needs.max_cost_usd * MICROS)
    cost = 0 if hours is None else forecast(hours * 3600, best.rate, best.billing)
    if cost > most:
        return f"{hours:g} hours there cost {usd(cost)}, more than {usd(most)}"
    return exceeds_budget(most, best)


def _fitting(
    backend: BackendView, offers: list[OfferView], needs: Requirements, regions: tuple[str, ...]
) -> tuple[list[OfferView], str]:
    """The offers that could hold the job, of the market it allows; else why none can."""
    size = effective(needs.tier, Resources.model_validate(needs.resources()))
    why = ""
    for market in (Market.SPOT, Market.ON_DEMAND) if needs.interruptible else (Market.ON_DEMAND,):
        reasons = [_why_never(backend, size, market, regions, offer) for offer in offers]
        fitting = [offer for offer, reason in zip(offers, reasons, strict=True) if not reason]
        if fitting:
            return fitting, ""
        why = why or next(filter(None, reversed(reasons)))
    return [], why


def _why_never(
    backend: BackendView, size: Resources, market: Market, regions: tuple[str, ...], offer: OfferView
) -> str:
    if backend.capabilities.get("slots") == "counted":
        return scheduling.why_never(size, offer.capacity, backend.name)
    spec = JobSpec(command=("true",), resources=size, market=market, regions=regions)
    return offer_choice.why_never(spec, offer.as_offer())


def _rank(place: Candidate, aim: Objective) -> tuple[float, ...]:
    offer = place.offer
    wait = offer.wait_seconds + offer.startup_seconds if offer else 0.0
    later = offer is None or not offer.runnable or offer.availability != Availability.AVAILABLE
    by_aim = (wait, place.hourly_usd) if aim is Objective.SPEED else (place.hourly_usd, wait)
    return (place.backend.is_simulated, later and aim is Objective.SPEED, *by_aim)


def _nowhere(rejected: Mapping[str, CrucibleError]) -> CrucibleError:
    reasons = "; ".join(f"{name}: {error.what}" for name, error in rejected.items())
    data = [{"backend": name, "why": error.what} for name, error in rejected.items()]
    if any(isinstance(error, RefusedByPolicy) for error in rejected.values()):
        return RefusedByPolicy(
            "No place can run this job for its max_cost_usd.",
            why=f"{reasons}.",
            fix="Raise max_cost_usd, lower duration_hours_estimated, or allow interruptible machines.",
            rejected=data,
        )
    return NoCapacity(
        "No place can hold this job.",
        why=f"{reasons}." if reasons else "The server is connected to none.",
        fix="Ask for less, allow other backends, or connect a larger place (`crucible backends` lists them).",
        rejected=data,
    )
