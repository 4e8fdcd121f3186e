"""What a job is to the router: the owner's words first, then what its program says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crucible.core.compute.resources import GiB, Resources
from crucible.core.routing.corrections import Correction
from crucible.core.routing.plan_request import PlanRequest
from crucible.core.routing.profile import (
    Conclusion,
    Confidence,
    Dataset,
    Distribution,
    GpuNeed,
    HostMemory,
    Memory,
    Precision,
    Profile,
)
from crucible.core.routing.profile_input import make_workload

NOTHING = PlanRequest()
SXM = "A100-40GB-SXM"
FOUR = ("torchrun", "--nproc-per-node", "4", "main.py")
READ = Profile(
    gpu=Conclusion(GpuNeed.REQUIRED, Confidence.HIGH),
    gpus=Conclusion(2),
    gpu_memory_gb=Conclusion(6.0),
    runtime_hours=Conclusion(3.0, Confidence.MEDIUM),
    precision=Conclusion(Precision.FP16),
    parameters=Conclusion(1_000_000),
    optimizer_bytes_per_parameter=Conclusion(8.0),
    dataset=Conclusion(Dataset("mine", gb=1.5)),
    epochs=Conclusion(6),
    checkpointing=Conclusion(True),
    resume=Conclusion(True),
    interruptible=Conclusion(True),
)


def test_what_is_read_says_what_is_needed() -> None:
    work = make_workload(NOTHING, READ)
    assert (work.gpu, work.need.gpus, work.need.gpu_memory_bytes) == (GpuNeed.REQUIRED, 2, 6 * 10**9)
    assert work.compute is not None
    assert (work.compute.seconds, work.compute.gpu, work.compute.precision) == (3 * 3600, "T4", "fp16")
    assert (work.dataset_bytes, work.output_bytes) == (1_500_000_000, 12_000_000)
    assert (work.checkpoint_seconds, work.interruptible) == (1800.0, True)


def test_what_is_said_stands() -> None:
    said = PlanRequest(
        resources=Resources(gpus=1, gpu_memory_bytes=40 * GiB), hours=1.0, gpu_types=(SXM,), interruptible=False
    )
    work = make_workload(said, READ)
    assert (work.need.gpus, work.need.gpu_memory_bytes, work.interruptible) == (1, 40 * GiB, False)
    assert work.compute is not None
    assert (work.compute.seconds, work.compute.gpu, work.compute.confidence) == (3600, SXM, Confidence.HIGH)


def test_nothing_read_and_nothing_said_is_nothing_known() -> None:
    work = make_workload(NOTHING)
    assert (work.gpu, work.compute, work.checkpoint_seconds, work.interruptible) == (GpuNeed.NONE, None, None, False)
    assert work.need == Resources()


def test_a_gpu_it_can_do_without_is_not_asked_for_but_its_memory_counts() -> None:
    work = make_workload(NOTHING, Profile(gpu=Conclusion(GpuNeed.OPTIONAL), gpu_memory_gb=Conclusion(3.0)))
    assert (work.gpu, work.need.gpus, work.need.gpu_memory_bytes) == (GpuNeed.OPTIONAL, 0, 3 * 10**9)


HOST = HostMemory(base=10**9, data=4 * 10**9, workers=10**9)


def test_memory_that_is_read_counts_unless_it_is_said() -> None:
    profile = Profile(host_memory=Conclusion(HOST, Confidence.MEDIUM))
    assert make_workload(NOTHING, profile).host == HOST
    assert make_workload(PlanRequest(resources=Resources(memory_bytes=GiB)), profile).host == HostMemory()


def test_of_memory_that_is_not_sure_the_least_counts() -> None:
    guessed = make_workload(NOTHING, Profile(host_memory=Conclusion(HOST, Confidence.LOW))).host
    assert guessed == HostMemory(base=10**9, data=2 * 10**9)


SHARDED = Profile(
    gpu=Conclusion(GpuNeed.REQUIRED),
    distribution=Conclusion(Distribution.FSDP),
    gpu_memory_gb=Conclusion(120.0),
    memory=Conclusion(Memory(27e9, 27e9, 54e9, activations=10e9, workspace=2e9, sharded=108e9)),
)
WHOLE = Conclusion(Memory(27e9, 27e9, 54e9, activations=10e9, workspace=2e9))


def test_what_is_sharded_is_split_over_as_many_gpus_as_hold_it() -> None:
    need = make_workload(NOTHING, SHARDED).need
    assert (need.gpus, need.gpu_memory_bytes) == (2, (54 + 12) * 10**9)
    eight = make_workload(PlanRequest(resources=Resources(gpus=8)), SHARDED).need
    assert (eight.gpus, eight.gpu_memory_bytes) == (8, (108 // 8 + 12) * 10**9 + 500_000_000)


def test_what_is_only_copied_is_whole_on_every_gpu() -> None:
    copied = replace(SHARDED, distribution=Conclusion(Distribution.DDP), memory=WHOLE)
    need = make_workload(PlanRequest(resources=Resources(gpus=8)), copied).need
    assert (need.gpus, need.gpu_memory_bytes) == (8, 120 * 10**9)
    assert make_workload(NOTHING, copied).need.gpus == 1


COPIED = replace(SHARDED, distribution=Conclusion(Distribution.DDP), gpu_memory_gb=Conclusion(8.0), memory=WHOLE)


def test_gpus_of_which_nobody_said_how_many_are_as_many_as_there_are() -> None:
    work = make_workload(NOTHING, COPIED)
    assert (work.spread, work.process_per_gpu, work.need.gpus) == (True, True, 1)
    for told in (
        PlanRequest(resources=Resources(gpus=2)),
        PlanRequest(code="1", command=("torchrun", "--nproc-per-node=2", "main.py")),
        PlanRequest(hours=1.0),
    ):
        assert not make_workload(told, COPIED).spread
    assert not make_workload(NOTHING, replace(COPIED, gpus=Conclusion(4))).spread
    assert not make_workload(NOTHING, replace(COPIED, distribution=Conclusion(Distribution.NONE))).spread


def test_steps_over_data_are_shared_and_steps_that_are_counted_out_are_not() -> None:
    timed = replace(COPIED, runtime_hours=Conclusion(5.0), steps=Conclusion(1000))
    for profile, shared in ((timed, False), (replace(timed, epochs=Conclusion(3)), True)):
        compute = make_workload(NOTHING, profile).compute
        assert compute is not None
        assert compute.shared is shared


def test_hours_are_those_on_the_gpus_that_the_launcher_takes() -> None:
    compute = make_workload(PlanRequest(hours=2.0, gpu_types=(SXM,), code="1", command=FOUR), COPIED).compute
    assert compute is not None
    assert compute.gpus == 4


@pytest.mark.parametrize(("sure", "least"), [(Confidence.LOW, True), (Confidence.MEDIUM, False)])
def test_memory_that_is_not_sure_is_the_least_there_is(sure: Confidence, least: bool) -> None:
    profile = replace(COPIED, host_memory=Conclusion(HostMemory(base=10**9), sure))
    assert make_workload(NOTHING, profile).host_is_least is least


def test_to_name_a_type_of_gpu_is_not_to_say_how_many() -> None:
    typed = PlanRequest(gpu_types=(SXM,))
    assert (make_workload(typed, COPIED).spread, make_workload(typed, COPIED).need.gpus) == (True, 1)
    assert make_workload(typed, replace(COPIED, gpus=Conclusion(4))).need.gpus == 4
    assert make_workload(typed).need.gpus == 1


def test_a_launcher_says_how_many_gpus_it_takes() -> None:
    assert make_workload(PlanRequest(code="1", command=FOUR), COPIED).need.gpus == 4
    assert make_workload(PlanRequest(code="1", command=FOUR, resources=Resources(gpus=2)), COPIED).need.gpus == 2


def test_without_a_gpu_it_is_what_the_model_takes_that_counts() -> None:
    parts = Memory(weights=1e9, gradients=1e9, optimizer=2e9, activations=3e9, workspace=5e8)
    assert make_workload(NOTHING, Profile(memory=Conclusion(parts))).model_bytes == 7 * 10**9
    assert make_workload(NOTHING, READ).model_bytes == 0


def test_without_a_gpu_it_takes_as_long_everywhere() -> None:
    work = make_workload(NOTHING, Profile(gpu=Conclusion(GpuNeed.NONE), runtime_hours=Conclusion(1.0)))
    assert work.compute is not None
    assert work.compute.gpu == ""


def test_past_jobs_correct_what_is_read_and_not_what_is_said() -> None:
    learned = Correction(2.0, 5, Confidence.HIGH)
    read, said = make_workload(NOTHING, READ, learned), make_workload(PlanRequest(hours=1.0), READ, learned)
    assert read.compute is not None
    assert said.compute is not None
    assert (read.compute.seconds, read.compute.confidence) == (6 * 3600, Confidence.HIGH)
    assert said.compute.seconds == 3600


@pytest.mark.parametrize("missing", ["checkpointing", "resume"])
def test_what_does_not_both_save_and_go_on_begins_anew(missing: str) -> None:
    assert make_workload(NOTHING, Profile(**{**vars(READ), missing: Conclusion(False)})).checkpoint_seconds is None


def test_a_program_that_saves_at_times_unknown_saves_a_few_times() -> None:
    assert make_workload(NOTHING, Profile(**{**vars(READ), "epochs": Conclusion()})).checkpoint_seconds == 1080.0
