"""Arguments for and against an offer, in words."""

from __future__ import annotations

from collections.abc import Iterator

from crucible.core.compute.offers import Availability, Market, Offer
from crucible.core.compute.resources import Capacity, GiB, format_duration, format_memory
from crucible.core.routing.estimate import Estimate
from crucible.core.routing.profile import Confidence, GpuNeed
from crucible.core.routing.workload import Workload

QUICK = 60.0
SLOW = 300.0
MUCH = 2.0
"""Times the needed GPU memory above which an offer has too much."""
TIGHT = 0.9
COARSE = 3600


def fit(work: Workload, offer: Offer) -> str:
    """Return in words how well the memory of an offer fits what the job needs."""
    has, wanted = offer.capacity, work.gpu_memory_on(offer.capacity)
    if work.gpu is GpuNeed.NONE:
        return "no GPU needed" if has.gpus else _memory_fit(work, has)
    if not has.gpus:
        return "without a GPU"
    if not wanted or not has.gpu_memory_bytes:
        return "GPU memory not known"
    return f"{_how(wanted / has.gpu_memory_bytes)}: {wanted / GiB:.1f} of {format_memory(has.gpu_memory_bytes)}"


def _memory_fit(work: Workload, has: Capacity) -> str:
    wanted, there = work.memory_on(has), has.memory_bytes
    return f"{_how(wanted / there)}: {wanted / GiB:.1f} of {format_memory(there)}" if wanted and there else "fits"


def _how(share: float) -> str:
    return "tight" if share > TIGHT else "ample" if share < 1 / MUCH else "good"


def pros(work: Workload, offer: Offer, estimated: Estimate, on_demand: int | None) -> Iterator[str]:
    """Yield the arguments for an offer. `on_demand` is the hourly rate of the same instance type on demand."""
    if offer.rate == 0:
        yield "free"
    if offer.wait_seconds + offer.startup_seconds < QUICK:
        yield "starts within a minute"
    if offer.rate and offer.billing.granularity <= 1 and offer.billing.minimum <= QUICK:
        yield "billed by the second"
    if on_demand and offer.rate < on_demand:
        yield f"{1 - offer.rate / on_demand:.0%} below the on-demand price"
    if offer.rate and offer.tariff.dedicated:
        yield "dedicated machine"
    if offer.market is Market.SPOT and work.checkpoint_seconds and estimated.lost is not None:
        yield "continues from checkpoints after interruptions"


def cons(work: Workload, offer: Offer, estimated: Estimate) -> Iterator[str]:
    """Yield the arguments against an offer."""
    if offer.availability is not Availability.AVAILABLE:
        yield f"{offer.availability.value}: a wait of about {format_duration(offer.wait_seconds)}"
    if offer.startup_seconds > SLOW:
        yield f"takes {format_duration(offer.startup_seconds)} to start"
    longest, seconds = offer.tariff.longest_seconds, estimated.seconds
    if longest is not None and seconds is not None and seconds > longest:
        yield f"moves to another machine every {format_duration(longest)}"
    if offer.market is Market.SPOT:
        yield _interrupted(work, offer, estimated)
    if max(offer.billing.granularity, offer.billing.minimum) >= COARSE:
        yield f"billed for at least {format_duration(max(offer.billing.granularity, offer.billing.minimum))}"
    if offer.rate and offer.tariff.dedicated is False:
        yield "machines are shared with other customers"
    wanted = work.gpu_memory_on(offer.capacity)
    if wanted and offer.capacity.gpu_memory_bytes > MUCH * wanted:
        yield f"{format_memory(offer.capacity.gpu_memory_bytes)} per GPU, more than twice what it needs"
    yield from _shared(work, offer)
    if work.gpu is GpuNeed.OPTIONAL and not offer.capacity.gpus:
        yield "no GPU, though the program would use one"
    yield from _unsure(estimated)


def _shared(work: Workload, offer: Offer) -> Iterator[str]:
    """Yield the assumption behind the estimate of a program that shares its work among all GPUs it gets."""
    there = len(offer.capacity.gpus)
    if not work.spread or not there:
        return
    if there == 1:
        yield "estimated for one GPU; it could share its work among several"
    elif work.compute is not None and not work.compute.shared:
        yield f"estimated for {there} GPUs that each run all of its steps: more data in the same time"
    elif work.process_per_gpu:
        unless = "unless it starts them itself, use a launcher (torchrun --nproc-per-node)"
        yield f"estimated for one process on each of {there} GPUs; {unless}"
    else:
        yield f"estimated for all {there} GPUs, which would share its work"


def _interrupted(work: Workload, offer: Offer, estimated: Estimate) -> str:
    if not work.checkpoint_seconds:
        return "may be reclaimed at any time; without checkpoints the job starts over"
    if not estimated.lost:
        return "may be reclaimed at any time"
    return f"may be reclaimed; about {format_duration(estimated.lost)} of work repeated"


def _unsure(estimated: Estimate) -> Iterator[str]:
    if estimated.seconds is None:
        yield "its runtime is unknown, so the price is per hour"
    elif estimated.confidence is Confidence.LOW:
        yield "its runtime is a rough guess"
