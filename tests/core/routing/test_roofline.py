"""How long counted work takes on one GPU and on another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.routing.market import HOUR, offer

from crucible.core.compute.gpus import GPUS, find_gpu
from crucible.core.compute.resources import Resources
from crucible.core.routing.estimate import duration
from crucible.core.routing.machine_speed import DataSheetSpeeds
from crucible.core.routing.profile import Conclusion, Confidence, GpuNeed, Memory, Profile
from crucible.core.routing.roofline import (
    STEP_SECONDS,
    CountedComputeTime,
    Load,
    Roof,
    cpu_roof,
    gpu_roof,
    make_load,
    with_load,
)
from crucible.core.routing.workload import ComputeTime, Workload

SHEETS = DataSheetSpeeds()
SUMS = Load(1e14, 1e6)
COPIES = Load(1e6, 1e12)
TOLD = ComputeTime(HOUR, "T4", 1, "fp16", Confidence.HIGH)


def hours(work: Load, there: str, gpus: int = 1, precision: str = "fp16") -> float:
    compute = CountedComputeTime(HOUR, "T4", 1, precision, Confidence.HIGH, load=work)
    job = Workload(Resources(gpus=gpus), GpuNeed.REQUIRED, compute)
    seconds, _ = duration(job, offer("aws/r/t", 1.0, there, gpus), SHEETS)
    assert seconds is not None
    return seconds / HOUR


def test_work_that_computes_gains_by_arithmetic_and_work_that_copies_by_memory() -> None:
    t4, a100 = find_gpu("T4"), find_gpu("A100-40GB-SXM")
    assert hours(SUMS, "A100-40GB-SXM") == pytest.approx(65 / 312, rel=0.02)
    assert hours(COPIES, "A100-40GB-SXM") == pytest.approx(t4.bandwidth / a100.bandwidth, rel=0.02)


def test_a_step_that_does_nothing_takes_as_long_everywhere() -> None:
    assert hours(Load(1.0, 1.0), "H100-SXM") == pytest.approx(1.0)
    assert Roof(1e12, 1e9).seconds(Load(0, 0)) == STEP_SECONDS


def test_both_together_lie_between_the_longer_one_and_the_sum() -> None:
    found = Roof(1.0, 1.0).seconds(Load(3.0, 4.0)) - STEP_SECONDS
    assert found == pytest.approx(5.0)


def test_several_share_it() -> None:
    assert hours(SUMS, "T4", 4) == pytest.approx(1 / 3.7)


def test_a_format_without_a_fast_way_is_computed_as_32_bits() -> None:
    assert gpu_roof(find_gpu("T4"), "bf16") == gpu_roof(find_gpu("T4"), "fp32") == gpu_roof(find_gpu("T4"), "int4")
    assert gpu_roof(find_gpu("A100-40GB-SXM"), "tf32").flops > gpu_roof(find_gpu("A100-40GB-SXM"), "fp32").flops


def test_what_a_framework_does_in_tf32_is_faster_where_there_is_tf32() -> None:
    half, none = Load(1e14, 1e6, tf32=5e13), Load(1e14, 1e6)
    a100, t4 = gpu_roof(find_gpu("A100-40GB-SXM"), "fp32"), gpu_roof(find_gpu("T4"), "fp32")
    assert a100.tf32 == gpu_roof(find_gpu("A100-40GB-SXM"), "tf32").flops
    assert a100.seconds(half) == pytest.approx(5e13 / a100.flops + 5e13 / a100.tf32, rel=0.01)
    assert t4.seconds(half) == t4.seconds(none)
    assert gpu_roof(find_gpu("A100-40GB-SXM"), "bf16").tf32 is None
    assert cpu_roof(8).seconds(half) == cpu_roof(8).seconds(none)


def test_another_vendors_gpu_has_no_tf32_by_default() -> None:
    others = [each for each in GPUS if each.vendor != "NVIDIA"]
    assert all(gpu_roof(each, "fp32").tf32 is None for each in others)


@pytest.mark.parametrize("one", GPUS, ids=lambda one: one.name)
def test_half_precision_is_never_slower(one: object) -> None:
    assert gpu_roof(one, "fp16").flops >= 0.9 * gpu_roof(one, "fp32").flops  # type: ignore[arg-type]


def test_a_gpu_that_nobody_knows_is_a_rough_guess() -> None:
    job = Workload(Resources(gpus=1), GpuNeed.REQUIRED, CountedComputeTime(HOUR, "T4", load=SUMS))
    assert duration(job, offer("aws/r/t", 1.0, "X9000"), SHEETS) == (HOUR, Confidence.LOW)


def test_what_was_told_for_there_stays_as_sure_as_it_was() -> None:
    job = Workload(Resources(gpus=1), GpuNeed.REQUIRED, with_load(TOLD, _profile()))
    assert duration(job, offer("aws/r/t", 1.0), SHEETS) == (HOUR, Confidence.HIGH)
    assert duration(job, offer("aws/r/t", 1.0, "L4"), SHEETS)[1] is Confidence.MEDIUM


def on_processors(work: Load, need: GpuNeed = GpuNeed.OPTIONAL, told: str = "T4", cpus: float = 8) -> float:
    job = Workload(Resources(), need, CountedComputeTime(HOUR, told, load=work))
    here = offer("local/here/pc", 0.0, "")
    seconds, _ = duration(job, replace(here, capacity=here.capacity.model_copy(update={"cpus": cpus})), SHEETS)
    assert seconds is not None
    return seconds / HOUR


def test_without_a_gpu_the_processors_do_it() -> None:
    t4 = gpu_roof(find_gpu("T4"), "fp32")
    assert on_processors(SUMS) == pytest.approx(t4.flops / cpu_roof(8).flops, rel=0.02)
    assert on_processors(COPIES) == pytest.approx(t4.bandwidth / cpu_roof(8).bandwidth, rel=0.02)


def test_what_a_step_takes_whatever_it_does_is_no_longer_on_processors() -> None:
    assert on_processors(Load(1.0, 1.0)) == pytest.approx(1.0)


def test_what_never_uses_a_gpu_is_done_sooner_by_more_processors() -> None:
    assert on_processors(SUMS, GpuNeed.NONE, told="", cpus=2) == pytest.approx(4.0, rel=0.02)
    assert on_processors(SUMS, GpuNeed.NONE, told="", cpus=8) == pytest.approx(1.0)


def test_a_gpu_without_a_name_is_a_rough_guess_and_none_of_the_processors() -> None:
    job = Workload(Resources(gpus=1), GpuNeed.REQUIRED, CountedComputeTime(HOUR, "T4", load=SUMS))
    there = offer("local/here/pc", 0.0)
    unnamed = replace(there, capacity=there.capacity.model_copy(update={"gpu_name": ""}))
    assert duration(job, unnamed, SHEETS) == (HOUR, Confidence.LOW)


def test_a_profile_tells_the_load() -> None:
    found = with_load(TOLD, _profile())
    assert isinstance(found, CountedComputeTime)
    assert found.load == make_load(1e12, Memory(activations=1e9))
    assert replace(TOLD) == ComputeTime(found.seconds, found.gpu, found.gpus, found.precision, found.confidence)


@pytest.mark.parametrize("profile", [Profile(), Profile(flops_per_step=Conclusion(1e12))])
def test_without_counts_it_stays_as_it_was(profile: Profile) -> None:
    assert with_load(TOLD, profile) is TOLD


def test_hours_that_hold_everywhere_stay_so() -> None:
    job = Workload(Resources(), GpuNeed.NONE, replace(TOLD, gpu=""))
    assert duration(job, offer("local/here/pc", 0.0, ""), SHEETS) == (HOUR, Confidence.HIGH)


def test_weights_are_moved_less_often_than_what_backward_keeps() -> None:
    assert make_load(0, Memory(weights=1e9)).traffic < make_load(0, Memory(activations=1e9)).traffic
    assert make_load(0, Memory(workspace=1e9)).traffic == 0


def test_a_profile_tells_how_much_of_it_is_in_tf32() -> None:
    found = with_load(TOLD, replace(_profile(), tf32_share=Conclusion(0.25)))
    assert isinstance(found, CountedComputeTime)
    assert found.load.tf32 == 0.25e12


def _profile() -> Profile:
    return Profile(flops_per_step=Conclusion(1e12), memory=Conclusion(Memory(activations=1e9)))
