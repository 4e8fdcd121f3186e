"""The smallest tier that holds a job, and a sentence that explains the choice."""

from __future__ import annotations

from collections.abc import Iterator

from crucible.core.compute.resources import Capacity, GiB, Resources, format_duration, format_memory
from crucible.core.compute.tiers import TIERS, Tier
from crucible.core.routing.profile import Evidence, GpuNeed, Profile
from crucible.core.routing.workload import Workload

LARGE_HOST = GiB
"""Host memory from which it is worth a mention for a program without a GPU."""


def smallest_tier(work: Workload) -> Tier | None:
    """Return the cheapest tier that is large enough, and long enough if the runtime is known; None if none is."""
    fitting = [tier for tier in TIERS.values() if _holds(tier.resources, work)]
    return min(fitting, key=lambda tier: tier.rate, default=None)


def explain_tier(profile: Profile, work: Workload) -> str:
    """Explain the tier: `Detected GPU usage (train.py:12) and 6 GiB of GPU memory. Recommended: GPU_SMALL.`"""
    reasons = " and ".join(_reasons(profile, work)) or "nothing that needs a GPU"
    tier = smallest_tier(work)
    advice = f"Recommended: {tier.id}" if tier else "No tier is that large; request resources (--gpus, --gpu-memory)"
    return f"Detected {reasons}. {advice}."


def _holds(size: Resources, work: Workload) -> bool:
    need, seconds = work.need, work.compute.seconds if work.compute else 0.0
    wants_gpu = work.gpu is not GpuNeed.NONE
    pairs = (
        (max(need.gpus, int(wants_gpu)), size.gpus),
        ((need.gpu_memory_bytes or 0) if wants_gpu else 0, size.gpu_memory_bytes or 0),
        (need.cpus or 0, size.cpus or 0),
        (need.memory_bytes or _memory_on(work, size), size.memory_bytes or 0),
        (need.seconds or seconds, size.seconds or 0),
    )
    return all(wanted <= there for wanted, there in pairs)


def _memory_on(work: Workload, size: Resources) -> int:
    has = Capacity(cpus=size.cpus or 0, memory_bytes=size.memory_bytes or 0, gpus=tuple(range(size.gpus)))
    return work.memory_on(has)


def _reasons(profile: Profile, work: Workload) -> Iterator[str]:
    if work.gpu is not GpuNeed.NONE:
        yield f"GPU usage{_location(profile.gpu.evidence)}"
        if work.need.gpu_memory_bytes:
            yield f"{format_memory(work.need.gpu_memory_bytes)} of GPU memory"
    elif work.host.total >= LARGE_HOST:
        yield f"{format_memory(work.host.total)} of memory"
    if work.compute is not None:
        yield f"about {format_duration(work.compute.seconds)} of work"


def _location(evidence: tuple[Evidence, ...]) -> str:
    return f" ({evidence[0].file}:{evidence[0].line})" if evidence else ""
