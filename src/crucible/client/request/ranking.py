"""Ranks a server's backends for a job: a pure function of their offers.

Plans are not used: they rank offers, not backends. A plan cannot tell a backend without offers yet from one that
cannot run the job, uses a simulated one only by name, and prices the whole catalog: too slow for many submissions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from crucible.core.compute.budget import usd, why_over_budget
from crucible.core.compute.offers import Availability, Market, Offer
from crucible.core.compute.pricing import forecast
from crucible.core.compute.tiers import effective_resources
from crucible.core.errors import CrucibleError, NoCapacity, RefusedByPolicy, UnknownName
from crucible.core.job.spec import JobSpec
from crucible.core.routing.plan_request import Goal, Objective
from crucible.core.scheduling import fit, slots
from crucible.core.views.compute import BackendView, OfferView


@dataclass(frozen=True)
class Ranking:
    """Backends that could run the job, best first, each with its best offer; and why others cannot.

    The offer is None for a backend that the user named and whose offers are not known yet.
    """

    offers: Mapping[str, OfferView | None]
    rejected: Mapping[str, str]
    is_simulated: bool

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.offers)


def rank_backends(
    backends: Sequence[BackendView], spec: JobSpec, goal: Goal, order: Sequence[str] | None = None
) -> Ranking:
    """Rank the backends that can run the job by the goal, or take those of `order` in that order.

    Unless backends are named, simulated ones are used only if no real one can run the job.
    Raises UnknownName, NoCapacity, or RefusedByPolicy if only the budget rules it out.
    """
    named = order if order is not None else goal.allowed_backends or None
    sized = spec.model_copy(update={"resources": effective_resources(spec.tier, spec.resources), "max_cost_usd": None})
    fitting: list[tuple[BackendView, OfferView | None]] = []
    rejected: dict[str, CrucibleError] = {}
    for backend in _named_backends(backends, named):
        if order and not backend.offers:
            fitting.append((backend, None))
            continue
        try:
            fitting.append((backend, _best_offer(backend, sized, spec.max_cost_micros, goal.hours)))
        except (NoCapacity, RefusedByPolicy) as error:
            rejected[backend.name] = error
    if not fitting:
        raise _no_backend(rejected)
    if order is None:
        fitting.sort(key=lambda pair: _rank(pair[0], pair[1], spec, goal.optimize))
        real = [pair for pair in fitting if not pair[0].is_simulated]
        fitting = real if real and named is None else fitting
    return Ranking(
        {backend.name: offer for backend, offer in fitting},
        {name: error.what for name, error in rejected.items()},
        any(backend.is_simulated for backend, _ in fitting),
    )


def _named_backends(backends: Iterable[BackendView], named: Sequence[str] | None) -> list[BackendView]:
    known = {backend.name: backend for backend in backends}
    for name in named or ():
        if name not in known:
            raise UnknownName("backend", name, known, fix="`crucible backends` lists the server's backends.")
    return list(known.values()) if named is None else [known[name] for name in named]


def _best_offer(backend: BackendView, sized: JobSpec, max_cost: int | None, hours: float | None) -> OfferView:
    """Return the best offer that could run the job: one that runs now, of its market, the cheapest.

    Raises NoCapacity, or RefusedByPolicy for the budget.
    """
    offers = [OfferView.model_validate(offer) for offer in backend.offers]
    if not offers:
        raise NoCapacity(backend.detail or f"{backend.name} offers nothing right now")
    fitting = sorted(
        _fitting(backend, offers, sized),
        key=lambda offer: (not offer.runnable, _is_fallback(sized, offer), offer.rate_micros_per_hour),
    )
    if max_cost is None:
        return fitting[0]
    too_dear = [_over_budget(offer.as_offer(), max_cost, hours) for offer in fitting]
    if all(too_dear):
        raise RefusedByPolicy(too_dear[0])
    return fitting[too_dear.index("")]


def _over_budget(best: Offer, max_cost: int, hours: float | None) -> str:
    cost = 0 if hours is None else forecast(hours * 3600, best.rate, best.billing)
    if cost > max_cost:
        return f"{hours:g} hours cost {usd(cost)}, more than {usd(max_cost)}"
    return why_over_budget(max_cost, best)


def _fitting(backend: BackendView, offers: list[OfferView], sized: JobSpec) -> list[OfferView]:
    """Return the offers that could run the job. Raises NoCapacity if there are none."""
    reasons = [_why_never(backend, sized, offer) for offer in offers]
    fitting = [offer for offer, reason in zip(offers, reasons, strict=True) if not reason]
    if fitting:
        return fitting
    if sized.market is Market.SPOT and not all(_why_never(backend, _on_demand(sized), offer) for offer in offers):
        raise NoCapacity("has no spot machine that fits; spot_fallback also allows those on demand")
    raise NoCapacity(next(filter(None, reversed(reasons))))


def _why_never(backend: BackendView, sized: JobSpec, offer: OfferView) -> str:
    """Return why the offer cannot run the job. Backends that do not bill satisfy every market."""
    if backend.capabilities.slots == "counted":
        return slots.why_too_small(sized.resources, offer.capacity, backend.name)
    if not backend.capabilities.bills:
        sized = sized.model_copy(update={"market": offer.market, "spot_fallback": False})
    elif sized.spot_fallback and offer.market is Market.ON_DEMAND:
        sized = _on_demand(sized)
    return fit.why_never(sized, offer.as_offer())


def _on_demand(spec: JobSpec) -> JobSpec:
    return spec.model_copy(update={"market": Market.ON_DEMAND, "spot_fallback": False})


def _is_fallback(spec: JobSpec, offer: OfferView | None) -> bool:
    """Return whether the job would run on demand there although it prefers spot."""
    if offer is None or not spec.spot_fallback:
        return False
    return offer.rate_micros_per_hour > 0 and offer.market is not Market.SPOT


def _rank(backend: BackendView, offer: OfferView | None, spec: JobSpec, objective: Objective) -> tuple[float, ...]:
    hourly = offer.rate_micros_per_hour if offer else 0
    wait = offer.wait_seconds + offer.startup_seconds if offer else 0.0
    not_now = offer is None or not offer.runnable or offer.availability != Availability.AVAILABLE
    by_objective = (wait, hourly) if objective is Objective.SPEED else (hourly, wait)
    return (
        backend.is_simulated,
        _is_fallback(spec, offer),
        not_now and objective is Objective.SPEED,
        *by_objective,
    )


def _no_backend(rejected: Mapping[str, CrucibleError]) -> CrucibleError:
    reasons = "; ".join(f"{name}: {error.what}" for name, error in rejected.items())
    data = [{"backend": name, "why": error.what} for name, error in rejected.items()]
    if any(isinstance(error, RefusedByPolicy) for error in rejected.values()):
        return RefusedByPolicy(
            "No backend can run this job within its max_cost_usd.",
            why=f"{reasons}.",
            fix="Raise max_cost_usd, lower duration_hours_estimated, or allow interruptible machines.",
            rejected=data,
        )
    return NoCapacity(
        "No backend can run this job.",
        why=f"{reasons}." if reasons else "The server is connected to no backend.",
        fix="Ask for less, allow other backends, or connect another backend (`crucible backends` lists them).",
        rejected=data,
    )
