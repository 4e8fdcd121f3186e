"""Why an offer is none for a job, and by how much it misses. Wishes count in the order in which they are asked."""

from __future__ import annotations

from crucible.core import budget, scheduling
from crucible.core.budget import usd
from crucible.core.gpus import called, spoken
from crucible.core.offers import Market, Offer
from crucible.core.profile import GpuNeed
from crucible.core.resources import Capacity, format_duration, format_memory
from crucible.core.routing.estimate import Estimate
from crucible.core.routing.wishes import Wishes
from crucible.core.routing.work import Work


class Judge:
    """Of one job at many offers: what depends on their size alone, or on their market, is judged once."""

    def __init__(self, work: Work, wishes: Wishes) -> None:
        self._work = work
        self._wishes = wishes
        self._choosy = bool(wishes.backend or wishes.backends or wishes.regions or wishes.gpu_types or wishes.dedicated)
        self._bounded = wishes.max_cost is not None or wishes.deadline is not None
        self._markets = {market: _wrong_market(work, wishes, market) for market in Market}
        self._sizes: dict[tuple[int, str], str] = {}

    def why_never(self, offer: Offer) -> str:
        """Why it is none whatever it costs: not what is wished for, or too small; empty when it could be one.

        Sizes are known by their identity, which the offers of a list share and which outlives the question.
        """
        if self._choosy and (why := _unwished(self._wishes, offer)):
            return why
        # What is free is nobody's market: one's own computer does whatever is wished for.
        if offer.rate and (why := self._markets[offer.market]):
            return why
        size = id(offer.capacity), offer.instance_type
        found = self._sizes.get(size)
        if found is None:
            found = self._sizes[size] = unfit(self._work, offer)
        return found

    def beyond(self, offer: Offer, estimated: Estimate) -> tuple[str, bool]:
        """Why one that fits is none, and whether that is only what it costs; empty when it is one."""
        if not self._bounded and offer.tariff.longest_seconds is None:
            return "", False
        dear = too_dear(self._wishes, offer, estimated)
        late = dear or too_late(self._wishes, estimated) or too_long(self._work, offer, estimated)
        return late, bool(dear)


def _unwished(wishes: Wishes, offer: Offer) -> str:
    if wishes.backend and offer.backend != wishes.backend:
        return f"is not at {wishes.backend}, where it is to run"
    if wishes.backends and offer.backend not in wishes.backends:
        return f"is not at {_or(wishes.backends)}, and nothing else may run it"
    if wishes.regions and not any(offer.region.startswith(region) for region in wishes.regions):
        return f"is in {offer.region}, not in {_or(wishes.regions)}"
    if wishes.gpu_types and called(offer.capacity.gpu_name) not in wishes.gpu_types:
        return f"has {offer.capacity.gpu_name or 'no GPU'}, not {spoken(wishes.gpu_types)}"
    if wishes.dedicated and offer.tariff.dedicated is False:
        return "shares its machines with others, and only dedicated ones are wished for"
    return ""


def unfit(work: Work, offer: Offer) -> str:
    has = offer.capacity
    if work.gpu is GpuNeed.REQUIRED and not has.gpus:
        return "needs a GPU, and there is none"
    wanted = work.gpu_memory_on(has)
    if work.gpu is GpuNeed.OPTIONAL and has.gpus and 0 < has.gpu_memory_bytes < wanted:
        return f"would use the GPU, with {format_memory(wanted)}; it has {format_memory(has.gpu_memory_bytes)}"
    return _too_little(work, has) or scheduling.why_never(work.need_on(has), has, offer.instance_type)


def _too_little(work: Work, has: Capacity) -> str:
    """Why its own memory does not hold what was read of the program."""
    wanted = work.memory_on(has)
    if not 0 < has.memory_bytes < wanted:
        return ""
    without = " without a GPU" if work.gpu is not GpuNeed.NONE and not has.gpus else ""
    return f"would take {format_memory(wanted)} of memory{without}; it has {format_memory(has.memory_bytes)}"


def too_dear(wishes: Wishes, offer: Offer, estimated: Estimate) -> str:
    """Why one that fits is none: what all of it would cost, or the least of it where nobody knows how long it takes."""
    if wishes.max_cost is None:
        return ""
    total, most = estimated.total, wishes.max_cost
    if total is not None and total > most:
        return f"would cost {usd(total)} in all, more than {usd(most)}"
    return budget.exceeds_budget(most, offer)


def too_late(wishes: Wishes, estimated: Estimate) -> str:
    """Why one that fits is none: when it would be done."""
    deadline, eta = wishes.deadline, None if wishes.deadline is None else estimated.eta
    if deadline is not None and eta is not None and eta > deadline:
        return f"would be done in {format_duration(eta)}, {format_duration(eta - deadline)} too late"
    return ""


def too_long(work: Work, offer: Offer, estimated: Estimate) -> str:
    """Why one that ends its machines is none: the job is not done by then, and does not go on elsewhere."""
    longest, seconds = offer.tariff.longest_seconds, estimated.seconds
    if longest is None or seconds is None or seconds <= longest or work.checkpoint_seconds is not None:
        return ""
    takes = f"it takes {format_duration(seconds)} and does not go on from checkpoints"
    return f"ends what runs there after {format_duration(longest)}; {takes}"


def excess(wishes: Wishes, estimated: Estimate) -> float:
    """How far it is beyond what it may cost, and how late: of each the share that would have to go."""
    pairs = ((wishes.max_cost, estimated.total), (wishes.deadline, estimated.eta))
    return sum(1 - most / there for most, there in pairs if most is not None and there and there > most)


def shortfall(work: Work, offer: Offer) -> float:
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


def astray(work: Work, wishes: Wishes, offer: Offer) -> float:
    """How far it is from what is wished for; another GPU is farther than another market."""
    other_gpu = bool(wishes.gpu_types) and called(offer.capacity.gpu_name) not in wishes.gpu_types
    elsewhere = bool(wishes.backends) and offer.backend not in wishes.backends
    wrong_market = bool(offer.rate and _wrong_market(work, wishes, offer.market))
    return 1.0 * elsewhere + 0.5 * other_gpu + 0.1 * wrong_market


def _wrong_market(work: Work, wishes: Wishes, market: Market) -> str:
    if wishes.market is not None and market is not wishes.market:
        return f"is {market.value}, not {wishes.market.value}"
    if wishes.market is None and market is Market.RESERVED:
        return "binds for years, whether it is used or not; `--market reserved` asks for such prices"
    if market is Market.SPOT and not work.interruptible:
        return "is taken back at any time, and the job may not be interrupted"
    return ""


def _or(names: tuple[str, ...]) -> str:
    return " or ".join(names)
