"""Why an offer cannot run a job, and how far off it is."""

from __future__ import annotations

from crucible.core.compute import budget
from crucible.core.compute.budget import usd
from crucible.core.compute.gpus import display_name, join_types
from crucible.core.compute.offers import Market, Offer
from crucible.core.compute.regions import in_regions
from crucible.core.compute.resources import Capacity, format_duration, format_memory
from crucible.core.routing.estimate import Estimate
from crucible.core.routing.plan_request import PlanRequest
from crucible.core.routing.profile import GpuNeed
from crucible.core.routing.workload import Workload
from crucible.core.scheduling import slots

NOT_SPOT = "is on demand, not spot; --spot-fallback allows that where no spot machine is available"
"""Why an on-demand offer cannot run a job that waits for spot."""


class OfferCheck:
    """Checks many offers for one job; what depends on capacity or market alone is checked once."""

    def __init__(self, work: Workload, request: PlanRequest) -> None:
        self._work = work
        self._request = request
        self._backends = request.named_backends or request.allowed_backends
        self._choosy = bool(self._backends or request.regions or request.gpu_types or request.dedicated)
        self._max_cost = request.max_cost_micros
        self._deadline = request.deadline_seconds
        self._bounded = self._max_cost is not None or self._deadline is not None
        self._markets = {market: _wrong_market(work, request, market) for market in Market}
        self._sizes: dict[tuple[int, str], str] = {}

    def why_never(self, offer: Offer) -> str:
        """Return why the offer is excluded at any price: not as requested, or too small; empty if it is not.

        Cached by the identity of the capacity, which offers of a list share and which outlives the request.
        """
        if self._choosy and (why := self._excluded(offer)):
            return why
        # A free offer has no market: the user's own computer serves any.
        market = self._markets[offer.market] if offer.rate else ""
        if market and market != NOT_SPOT:
            return market
        size = id(offer.capacity), offer.instance_type
        found = self._sizes.get(size)
        if found is None:
            found = self._sizes[size] = why_too_small(self._work, offer)
        return found or market

    def exceeds_limits(self, offer: Offer, estimated: Estimate) -> tuple[str, bool]:
        """Return why a fitting offer is rejected (empty if it is not), and whether its cost is the only reason."""
        if not self._bounded and offer.tariff.longest_seconds is None:
            return "", False
        cost = why_too_expensive(self._max_cost, offer, estimated)
        reason = cost or why_too_late(self._deadline, estimated) or why_too_long(self._work, offer, estimated)
        return reason, bool(cost)

    def _excluded(self, offer: Offer) -> str:
        request = self._request
        if self._backends and offer.backend not in self._backends:
            allowed = "backend" if len(self._backends) == 1 else "backends"
            return f"is not on {_or(self._backends)}, the only {allowed} allowed"
        if request.regions and not in_regions(offer.region, request.regions):
            return f"is in {offer.region}, not in {_or(request.regions)}"
        if request.gpu_types and display_name(offer.capacity.gpu_name) not in request.gpu_types:
            return f"has {offer.capacity.gpu_name or 'no GPU'}, not {join_types(request.gpu_types)}"
        if request.dedicated and offer.tariff.dedicated is False:
            return "has shared machines, and only dedicated ones were requested"
        return ""

    def distance(self, offer: Offer, estimated: Estimate) -> float:
        """Return how far an offer is from being usable, to find the nearest of those that are not."""
        beyond = excess(self._max_cost, estimated.total) + excess(self._deadline, estimated.eta)
        return shortfall(self._work, offer) + self._mismatch(offer) + beyond

    def _mismatch(self, offer: Offer) -> float:
        """Return how far the offer is from the request; another GPU type is farther than another market."""
        types = self._request.gpu_types
        other_gpu = bool(types) and display_name(offer.capacity.gpu_name) not in types
        other_backend = bool(self._backends) and offer.backend not in self._backends
        wrong_market = bool(offer.rate and self._markets[offer.market])
        return 1.0 * other_backend + 0.5 * other_gpu + 0.1 * wrong_market


def why_too_small(work: Workload, offer: Offer) -> str:
    """Return why the capacity of an offer cannot hold the workload; empty if it can."""
    has = offer.capacity
    if work.gpu is GpuNeed.REQUIRED and not has.gpus:
        return "has no GPU, and one is needed"
    wanted = work.gpu_memory_on(has)
    if work.gpu is GpuNeed.OPTIONAL and has.gpus and 0 < has.gpu_memory_bytes < wanted:
        return f"has {format_memory(has.gpu_memory_bytes)} of GPU memory; the job would use {format_memory(wanted)}"
    return _too_little(work, has) or slots.why_too_small(work.need_on(has), has, offer.instance_type)


def _too_little(work: Workload, has: Capacity) -> str:
    """Return why the host memory is too small for what was read from the program; empty if it is not."""
    wanted = work.memory_on(has)
    if not 0 < has.memory_bytes < wanted:
        return ""
    without = " without a GPU" if work.gpu is not GpuNeed.NONE and not has.gpus else ""
    return f"has {format_memory(has.memory_bytes)} of memory; the job would take {format_memory(wanted)}{without}"


def why_too_expensive(most: int | None, offer: Offer, estimated: Estimate) -> str:
    """Return why a fitting offer is over budget: by its total cost, or by the least cost if the runtime is unknown."""
    if most is None:
        return ""
    total = estimated.total
    if total is not None and total > most:
        return f"would cost {usd(total)} in total, more than {usd(most)}"
    return budget.why_over_budget(most, offer)


def why_too_late(deadline: float | None, estimated: Estimate) -> str:
    """Return why a fitting offer would be done after the deadline; empty if it would not."""
    eta = None if deadline is None else estimated.eta
    if deadline is not None and eta is not None and eta > deadline:
        return f"would be done in {format_duration(eta)}, {format_duration(eta - deadline)} too late"
    return ""


def why_too_long(work: Workload, offer: Offer, estimated: Estimate) -> str:
    """Return why the maximum runtime of a fitting offer is too short for a job that cannot resume elsewhere, or ""."""
    longest, seconds = offer.tariff.longest_seconds, estimated.seconds
    if longest is None or seconds is None or seconds <= longest or work.checkpoint_seconds is not None:
        return ""
    takes = f"the job takes {format_duration(seconds)} and does not resume from checkpoints"
    return f"ends jobs after {format_duration(longest)}; {takes}"


def excess(most: float | None, value: float | None) -> float:
    """Return the share by which a value exceeds its limit, or 0."""
    return 1 - most / value if most is not None and value and value > most else 0.0


def shortfall(work: Workload, offer: Offer) -> float:
    """Return how much of the need is missing: 0 if nothing, plus up to 1 for each kind of resource."""
    need, has = work.need_on(offer.capacity), offer.capacity
    gpus = max(need.gpus, 1 if work.gpu is GpuNeed.REQUIRED else 0)
    pairs = (
        (gpus, len(has.gpus)),
        (need.gpu_memory_bytes or 0, has.gpu_memory_bytes),
        (need.cpus or 0, has.cpus),
        (max(need.memory_bytes or 0, work.memory_on(has)), has.memory_bytes),
    )
    return sum(1 - value / wanted for wanted, value in pairs if wanted > value)


def _wrong_market(work: Workload, request: PlanRequest, market: Market) -> str:
    wanted = request.planned_market
    if wanted is Market.SPOT and market is Market.ON_DEMAND:
        return "" if request.spot_fallback else NOT_SPOT
    if wanted is not None and market is not wanted:
        return f"is {market.value}, not {wanted.value}"
    if wanted is None and market is Market.RESERVED:
        return "is a commitment for years, used or not; `--market reserved` includes such prices"
    if market is Market.SPOT and not work.interruptible:
        return "may be reclaimed at any time, and the job may not be interrupted"
    return ""


def _or(names: tuple[str, ...]) -> str:
    return " or ".join(names)
