"""The named size that holds a job, and why that one, in a sentence."""

from __future__ import annotations

from collections.abc import Iterator

from crucible.core.compute.resources import Capacity, GiB, Resources, format_duration, format_memory
from crucible.core.compute.tiers import TIERS, Tier
from crucible.core.routing.profile import Evidence, GpuNeed, Profile
from crucible.core.routing.workload import Workload

LARGE_HOST = GiB
"""What a program without a GPU takes of memory is worth a word from there on."""


def smallest_tier(work: Workload) -> Tier | None:
    """The cheapest tier that is large enough, and long enough where it is known how long; None: none is."""
    fitting = [tier for tier in TIERS.values() if _holds(tier.resources, work)]
    return min(fitting, key=lambda tier: tier.rate, default=None)


def explain_tier(profile: Profile, work: Workload) -> str:
    """`Detected GPU usage (train.py:12) and 6 GiB of GPU memory. Recommended: GPU_SMALL.`"""
    reasons = " and ".join(_reasons(profile, work)) or "nothing that needs a GPU"
    tier = smallest_tier(work)
    advice = f"Recommended: {tier.id}" if tier else "No tier is that large; name what it needs (--gpus, --gpu-memory)"
    return f"Detected {reasons}. {advice}."


def _holds(size: Resources, work: Workload) -> bool:
    need, seconds = work.need, work.compute.seconds if work.compute else 0.0
    wants_gpu = work.gpu is not GpuNeed.NONE
    pairs = (
        (max(need.gpus, int(wants_gpu)), size.gpus),
        ((need.gpu_memory_bytes or 0) if wants_gpu else 0, size.gpu_memory_bytes or 0),
        (need.cpus or 0, size.cpus or 0),
        (need.memory_bytes or _read_of(work, size), size.memory_bytes or 0),
        (need.seconds or seconds, size.seconds or 0),
    )
    return all(wanted <= there for wanted, there in pairs)


def _read_of(work: Workload, size: Resources) -> int:
    has = Capacity(cpus=size.cpus or 0, memory_bytes=size.memory_bytes or 0, gpus=tuple(range(size.gpus)))
    return work.memory_on(has)


def _reasons(profile: Profile, work: Workload) -> Iterator[str]:
    if work.gpu is not GpuNeed.NONE:
        yield f"GPU usage{_at(profile.gpu.evidence)}"
        if work.need.gpu_memory_bytes:
            yield f"{format_memory(work.need.gpu_memory_bytes)} of GPU memory"
    elif work.host.total >= LARGE_HOST:
        yield f"{format_memory(work.host.total)} of memory"
    if work.compute is not None:
        yield f"about {format_duration(work.compute.seconds)} of work"


def _at(evidence: tuple[Evidence, ...]) -> str:
    return f" ({evidence[0].file}:{evidence[0].line})" if evidence else ""
