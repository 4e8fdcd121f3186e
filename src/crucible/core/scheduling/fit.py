"""Check whether an offer fits a job, and allocate a machine that is made for one attempt.

The `resources` of the specs here are the effective ones, with the tier applied.
"""

from __future__ import annotations

from crucible.core.compute import budget
from crucible.core.compute.gpus import display_name, join_types
from crucible.core.compute.offers import Market, Offer
from crucible.core.compute.regions import in_regions
from crucible.core.compute.resources import Allocation
from crucible.core.job.spec import JobSpec
from crucible.core.scheduling import slots

_SPOT_FALLBACK = "; with --spot-fallback it could run on demand"


def why_never(spec: JobSpec, offer: Offer, market: Market | None = None) -> str:
    """Return why this offer can never be used for the job; empty if it may.

    `market` is the candidate's (default: the job's). An offer without a price satisfies every market.
    """
    market = market or spec.market or Market.ON_DEMAND
    if why := _wrong_region(spec, offer):
        return why
    if offer.rate and offer.market is not market:
        hint = _SPOT_FALLBACK if market is Market.SPOT and not spec.spot_fallback else ""
        return f"wants {market.value}; {offer.instance_type} is {offer.market.value}{hint}"
    return (
        wrong_gpu(spec.gpu_types, offer)
        or slots.why_too_small(spec.resources, offer.capacity, offer.instance_type)
        or budget.why_over_budget(spec.max_cost_micros, offer)
    )


def why_no_files(spec: JobSpec, backend: str, *, in_place: bool, may_see_paths: bool) -> str:
    """Return which files of the submitting computer the job is to use and a backend's machines lack; empty if none."""
    if spec.in_place and not in_place:
        return f"is to run in place, which {backend} cannot; leave out --in-place"
    path = next((item.source for item in spec.data if item.is_path), None)
    if path is None or may_see_paths:
        return ""
    return f"reads {path}, a path of this computer, which machines of {backend} do not have; use --data NAME=https://…"


def spot_hint(spec: JobSpec, offer: Offer) -> str:
    """Return a hint at --spot-fallback for a job that waits for a spot offer; empty if it does not apply."""
    return _SPOT_FALLBACK if offer.rate and offer.market is Market.SPOT and not spec.spot_fallback else ""


def _wrong_region(spec: JobSpec, offer: Offer) -> str:
    """Return why the offer's region is not one that the job names; empty if it is.

    Nodes are in no region, so they are only refused if the job names no other backend.
    """
    if not spec.regions or in_regions(offer.region, spec.regions):
        return ""
    if offer.node is None:
        return f"wants {' or '.join(spec.regions)}; {offer.instance_type} is in {offer.region}"
    return f"wants {' or '.join(spec.regions)}; {offer.backend} is in no region" if len(spec.backends) == 1 else ""


def wrong_gpu(types: tuple[str, ...], offer: Offer) -> str:
    """Return why the offer's GPU is not one of these types; empty if it is, or if any type will do."""
    has = offer.capacity.gpu_name
    if not types or display_name(has) in types:
        return ""
    return f"wants {join_types(types)}; {offer.instance_type} has {has or 'no GPU'}"


def allocate_whole_machine(spec: JobSpec, offer: Offer) -> Allocation:
    """Return the slots of a machine made for one attempt: all of it, the GPUs requested, the time the budget pays."""
    capacity = offer.capacity
    _, _, gpus = slots.demand(spec.resources, capacity)
    seconds = budget.affordable_seconds(spec.max_cost_micros, offer)
    return Allocation(
        cpus=capacity.cpus, memory_bytes=capacity.memory_bytes, gpus=capacity.gpus[:gpus], seconds=seconds
    )
