"""Make the workload of a job from its request and, where the request is silent, from the profile of its program."""

from __future__ import annotations

from crucible.core.compute.offers import Market
from crucible.core.compute.resources import Resources
from crucible.core.compute.tiers import effective_resources
from crucible.core.routing.corrections import Correction
from crucible.core.routing.plan_request import PlanRequest
from crucible.core.routing.profile import Confidence, Distribution, GpuNeed, HostMemory, Profile
from crucible.core.routing.roofline import with_load
from crucible.core.routing.workload import ComputeTime, GpuMemory, Workload

REFERENCE = "T4"
"""The GPU that the hours of a profile refer to."""
GB = 10**9
LARGE_GPU = 80 * GB
"""Memory of the GPUs that large models are trained on."""
WEIGHT = 4
"""Bytes per saved parameter."""
PIECES = 10
"""The assumed number of checkpoints of a program that saves at unknown times."""
UNREAD = Profile()


def requested_resources(request: PlanRequest) -> Resources:
    """Return the effective resources; GPU types alone ask for one GPU."""
    need = effective_resources(request.tier, request.resources)
    return need.model_copy(update={"gpus": 1}) if request.gpu_types and not need.gpus else need


def make_workload(request: PlanRequest, profile: Profile = UNREAD, learned: Correction | None = None) -> Workload:
    """Return the workload of a job. `learned` corrects the runtime read from the profile, not one that is requested."""
    requested, spot = requested_resources(request), request.interruptible
    if spot is None:
        spot = request.market is Market.SPOT or bool(profile.interruptible.value)
    gpu = GpuNeed.REQUIRED if requested.gpus else profile.gpu.value or GpuNeed.NONE
    on_gpus = GpuMemory() if requested.gpu_memory_bytes or gpu is GpuNeed.NONE else _gpu_memory(profile)
    need = requested.model_copy(update=_gpus(request, profile, gpu, on_gpus))
    compute = _stated(request, profile) or _profiled(profile, gpu, learned or Correction())
    return Workload(
        need=need,
        gpu=gpu,
        compute=compute,
        dataset_bytes=round((profile.dataset.value.gb or 0) * GB) if profile.dataset.value else 0,
        output_bytes=_output_bytes(profile),
        checkpoint_seconds=_checkpoint_seconds(profile, compute),
        interruptible=spot,
        model_bytes=_model_bytes(profile),
        host=_host_memory(requested, profile),
        host_is_least=profile.host_memory.confidence is Confidence.LOW,
        on_gpus=on_gpus,
        spread=_spread(request, profile, gpu),
        process_per_gpu=bool(profile.distribution.value and profile.distribution.value.needs_launcher),
    )


def _stated_gpus(request: PlanRequest) -> int:
    """Return the number of GPUs that the request or the launcher states; 0: not stated."""
    return effective_resources(request.tier, request.resources).gpus or request.processes or 0


def _spread(request: PlanRequest, profile: Profile, gpu: GpuNeed) -> bool:
    stated = _stated_gpus(request) or profile.gpus.value or request.hours is not None
    return not stated and gpu is not GpuNeed.NONE and profile.distribution.value not in (None, Distribution.NONE)


def _gpus(request: PlanRequest, profile: Profile, gpu: GpuNeed, on_gpus: GpuMemory) -> dict[str, int]:
    """Return the number of GPUs, and the memory of each, that the request leaves open."""
    if gpu is GpuNeed.NONE:
        return {}
    found: dict[str, int] = {}
    count = _stated_gpus(request) or profile.gpus.value or _fewest_gpus(on_gpus)
    if gpu is GpuNeed.REQUIRED and not effective_resources(request.tier, request.resources).gpus:
        found["gpus"] = max(count, 1)
    if on_gpus.whole:
        found["gpu_memory_bytes"] = on_gpus.per_gpu(count)
    return found


def _gpu_memory(profile: Profile) -> GpuMemory:
    parts = profile.memory.value
    return GpuMemory((profile.gpu_memory_gb.value or 0) * GB, parts.sharded if parts is not None else 0.0)


def _fewest_gpus(on_gpus: GpuMemory) -> int:
    """Return the smallest usual number of GPUs that hold a model which is split over all of them."""
    if not on_gpus.sharded:
        return 1
    return next((gpus for gpus in (1, 2, 4, 8) if on_gpus.per_gpu(gpus) <= LARGE_GPU), 8)


def _stated(request: PlanRequest, profile: Profile) -> ComputeTime | None:
    """Return the compute time that the request states, on its GPU type if it names one; None if it states none."""
    if request.hours is None:
        return None
    gpu = request.gpu_types[0] if len(request.gpu_types) == 1 else ""
    precision = profile.precision.value.value if profile.precision.value else "fp32"
    return ComputeTime(request.hours * 3600, gpu, max(_stated_gpus(request), 1), precision, Confidence.HIGH)


def _profiled(profile: Profile, gpu: GpuNeed, learned: Correction) -> ComputeTime | None:
    hours = profile.runtime_hours
    if hours.value is None:
        return None
    seconds, sure = hours.value * 3600 * learned.factor, learned.confidence or hours.confidence
    precision = profile.precision.value.value if profile.precision.value else "fp32"
    on = REFERENCE if gpu is not GpuNeed.NONE else ""
    return with_load(ComputeTime(seconds, on, 1, precision, sure, shared=_is_shared(profile)), profile)


def _is_shared(profile: Profile) -> bool:
    """Return whether more GPUs mean fewer steps: in epochs over the data they do, with a fixed number of steps not."""
    return profile.epochs.value is not None or profile.steps.assumed or profile.steps.value is None


def _output_bytes(profile: Profile) -> int:
    """Return the size of the saved model: its weights and the optimizer state."""
    if not profile.parameters.value:
        return 0
    state = profile.optimizer_bytes_per_parameter.value or 0
    return round(profile.parameters.value * (WEIGHT + state))


def _model_bytes(profile: Profile) -> int:
    """Return the memory of the model without the overhead of a GPU's driver and libraries."""
    parts = profile.memory.value
    return 0 if parts is None else round(parts.total - parts.workspace)


def _host_memory(need: Resources, profile: Profile) -> HostMemory:
    """Return the host memory of the program: its minimum at low confidence, empty if the request states memory."""
    found = profile.host_memory
    if found.value is None or need.memory_bytes:
        return HostMemory()
    return found.value.least if found.confidence is Confidence.LOW else found.value


def _checkpoint_seconds(profile: Profile, compute: ComputeTime | None) -> float | None:
    """Return the seconds between checkpoints; None for a program that does not resume from checkpoints."""
    if compute is None or not (profile.checkpointing.value and profile.resume.value):
        return None
    return compute.seconds / max(profile.epochs.value or PIECES, 1)
