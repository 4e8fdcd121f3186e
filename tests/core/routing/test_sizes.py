"""The named size that holds a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crucible.core.compute.resources import GiB, Resources
from crucible.core.routing.profile import Conclusion, Evidence, GpuNeed, HostMemory, Profile
from crucible.core.routing.sizes import explain_tier, smallest_tier
from crucible.core.routing.workload import ComputeTime, Workload

GPU = Profile(gpu=Conclusion(GpuNeed.REQUIRED, evidence=(Evidence("train.py", 12, "x.cuda()"),)))


def work(gpu: GpuNeed = GpuNeed.NONE, hours: float = 0.0, **need: float) -> Workload:
    return Workload(Resources.model_validate(need), gpu, ComputeTime(hours * 3600) if hours else None)


@pytest.mark.parametrize(
    ("asked", "tier"),
    [
        (work(), "CPU_SMALL"),
        (work(hours=0.1), "CPU_LARGE"),
        (work(memory_bytes=2 * GiB), "CPU_LARGE"),
        (work(GpuNeed.REQUIRED, hours=1.0), "GPU_SMALL"),
        (work(GpuNeed.OPTIONAL, hours=1.0), "GPU_SMALL"),
        (work(GpuNeed.REQUIRED, hours=3.0), "GPU_MEDIUM"),
        (work(GpuNeed.REQUIRED, gpu_memory_bytes=20 * GiB), "GPU_LARGE"),
        (work(GpuNeed.REQUIRED, gpu_memory_bytes=40 * GiB), None),
        (work(GpuNeed.REQUIRED, gpus=2), None),
        (work(GpuNeed.REQUIRED, hours=100.0), None),
    ],
)
def test_the_cheapest_that_is_large_and_long_enough(asked: Workload, tier: str | None) -> None:
    found = smallest_tier(asked)
    assert (found.id if found else None) == tier


def test_memory_that_was_read_counts_and_is_told() -> None:
    program = replace(work(), host=HostMemory(base=GiB, data=2 * GiB))
    found = smallest_tier(program)
    assert found is not None
    assert found.id == "CPU_LARGE"
    assert explain_tier(Profile(), program) == "Detected 3 GiB of memory. Recommended: CPU_LARGE."
    assert smallest_tier(replace(program, host=HostMemory(data=500 * GiB))) is None


def test_the_sentence_says_what_was_seen_and_where() -> None:
    assert explain_tier(GPU, work(GpuNeed.REQUIRED)) == "Detected GPU usage (train.py:12). Recommended: GPU_SMALL."


def test_the_sentence_names_memory_and_time() -> None:
    said = explain_tier(GPU, work(GpuNeed.REQUIRED, hours=3.0, gpu_memory_bytes=6 * GiB))
    assert "and 6 GiB of GPU memory and about 3h 00m of work. Recommended: GPU_MEDIUM." in said


def test_without_a_gpu() -> None:
    assert explain_tier(Profile(), work()) == "Detected nothing that needs a GPU. Recommended: CPU_SMALL."


def test_what_no_tier_holds() -> None:
    assert "No tier is that large" in explain_tier(GPU, work(GpuNeed.REQUIRED, gpus=8))
