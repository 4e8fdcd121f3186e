"""Why an offer cannot run a job, and how far off it is."""

from __future__ import annotations

from crucible.core.compute import budget, scheduling
from crucible.core.compute.budget import usd
from crucible.core.compute.gpus import display_name, join_types
from crucible.core.compute.offers import Market, Offer
from crucible.core.compute.resources import Capacity, format_duration, format_memory
from crucible.core.routing.estimate import Estimate
from crucible.core.routing.plan_request import PlanRequest
from crucible.core.routing.profile import GpuNeed
from crucible.core.routing.workload import Workload


class OfferCheck:
    """Of one job at many offers: what depends on their size alone, or on their market, is judged once."""

    def __init__(self, work: Workload, request: PlanRequest) -> None:
        self._work = work
        self._request = request
        self._backends = request.named_backends or request.allowed_backends
        self._choosy = bool(self._backends or request.regions or request.gpu_types or request.dedicated)
        self._max_cost = request.max_cost_micros
        self._deadline = request.deadline_seconds
        self._bounded = self._max_cost is not None or self._deadline is not None
        self._markets = {market: _wrong_market(work, request.planned_market, market) for market in Market}
        self._sizes: dict[tuple[int, str], str] = {}

    def why_never(self, offer: Offer) -> str:
        """Say why it is none whatever it costs: not what was asked for, or too small; empty when it could be one.

        Sizes are known by their identity, which the offers of a list share and which outlives the question.
        """
        if self._choosy and (why := self._excluded(offer)):
            return why
        # What is free has no market: one's own computer does for any.
        if offer.rate and (why := self._markets[offer.market]):
            return why
        size = id(offer.capacity), offer.instance_type
        found = self._sizes.get(size)
        if found is None:
            found = self._sizes[size] = why_too_small(self._work, offer)
        return found

    def exceeds_limits(self, offer: Offer, estimated: Estimate) -> tuple[str, bool]:
        """Why one that fits is none, and whether that is only what it costs; empty when it is one."""
        if not self._bounded and offer.tariff.longest_seconds is None:
            return "", False
        dear = why_over_budget(self._max_cost, offer, estimated)
        late = dear or why_too_late(self._deadline, estimated) or why_too_long(self._work, offer, estimated)
        return late, bool(dear)

    def _excluded(self, offer: Offer) -> str:
        request = self._request
        if self._backends and offer.backend not in self._backends:
            return f"is not at {_or(self._backends)}, and nothing else may run it"
        if request.regions and not any(offer.region.startswith(region) for region in request.regions):
            return f"is in {offer.region}, not in {_or(request.regions)}"
        if request.gpu_types and display_name(offer.capacity.gpu_name) not in request.gpu_types:
            return f"has {offer.capacity.gpu_name or 'no GPU'}, not {join_types(request.gpu_types)}"
        if request.dedicated and offer.tariff.dedicated is False:
            return "shares its machines with others, and only dedicated ones were requested"
        return ""

    def distance(self, offer: Offer, estimated: Estimate) -> float:
        """How far an offer is from one that could be used, for the nearest of those that cannot."""
        beyond = excess(self._max_cost, estimated.total) + excess(self._deadline, estimated.eta)
        return shortfall(self._work, offer) + self._mismatch(offer) + beyond

    def _mismatch(self, offer: Offer) -> float:
        """How far it is from what was asked for; another GPU is farther than another market."""
        types = self._request.gpu_types
        other_gpu = bool(types) and display_name(offer.capacity.gpu_name) not in types
        elsewhere = bool(self._backends) and offer.backend not in self._backends
        wrong_market = bool(offer.rate and self._markets[offer.market])
        return 1.0 * elsewhere + 0.5 * other_gpu + 0.1 * wrong_market


def why_too_small(work: Workload, offer: Offer) -> str:
    has = offer.capacity
    if work.gpu is GpuNeed.REQUIRED and not has.gpus:
        return "needs a GPU, and there is none"
    wanted = work.gpu_memory_on(has)
    if work.gpu is GpuNeed.OPTIONAL and has.gpus and 0 < has.gpu_memory_bytes < wanted:
        return f"would use the GPU, with {format_memory(wanted)}; it has {format_memory(has.gpu_memory_bytes)}"
    return _too_little(work, has) or scheduling.why_never(work.need_on(has), has, offer.instance_type)


def _too_little(work: Workload, has: Capacity) -> str:
    """Why its own memory does not hold what was read of the program."""
    wanted = work.memory_on(has)
    if not 0 < has.memory_bytes < wanted:
        return ""
    without = " without a GPU" if work.gpu is not GpuNeed.NONE and not has.gpus else ""
    return f"would take {format_memory(wanted)} of memory{without}; it has {format_memory(has.memory_bytes)}"


def why_over_budget(most: int | None, offer: Offer, estimated: Estimate) -> str:
    """Why one that fits is none: what all of it would cost, or the least of it where nobody knows how long it takes."""
    if most is None:
        return ""
    total = estimated.total
    if total is not None and total > most:
        return f"would cost {usd(total)} in all, more than {usd(most)}"
    return budget.exceeds_budget(most, offer)


def why_too_late(deadline: float | None, estimated: Estimate) -> str:
    """Why one that fits is none: when it would be done."""
    eta = None if deadline is None else estimated.eta
    if deadline is not None and eta is not None and eta > deadline:
        return f"would be done in {format_duration(eta)}, {format_duration(eta - deadline)} too late"
    return ""


def why_too_long(work: Workload, offer: Offer, estimated: Estimate) -> str:
    """Why one that ends its machines is none: the job is not done by then, and does not go on elsewhere."""
    longest, seconds = offer.tariff.longest_seconds, estimated.seconds
    if longest is None or seconds is None or seconds <= longest or work.checkpoint_seconds is not None:
        return ""
    takes = f"it takes {format_duration(seconds)} and does not go on from checkpoints"
    return f"ends what runs there after {format_duration(longest)}; {takes}"


def excess(most: float | None, there: float | None) -> float:
    """The share of what there is that would have to go; 0 where it is within its limit."""
    return 1 - most / there if most is not None and there and there > most else 0.0


def shortfall(work: Workload, offer: Offer) -> float:
    """How much of what it needs is not there: 0 when all is, 1 for each kind of which there is nothing."""
    need, has = work.need_on(offer.capacity), offer.capacity
    gpus = max(need.gpus, 1 if work.gpu is GpuNeed.REQUIRED else 0)
    pairs = (
        (gpus, len(has.gpus)),
        (need.gpu_memory_bytes or 0, has.gpu_memory_bytes),
        (need.cpus or 0, has.cpus),
        (max(need.memory_bytes or 0, work.memory_on(has)), has.memory_bytes),
    )
    return sum(1 - there / wanted for wanted, there in pairs if wanted > there)


def _wrong_market(work: Workload, wanted: Market | None, market: Market) -> str:
    if wanted is not None and market is not wanted:
        return f"is {market.value}, not {wanted.value}"
    if wanted is None and market is Market.RESERVED:
        return "binds for years, whether it is used or not; `--market reserved` asks for such prices"
    if market is Market.SPOT and not work.interruptible:
        return "is taken back at any time, and the job may not be interrupted"
    return ""


def _or(names: tuple[str, ...]) -> str:
    return " or ".join(names)
