"""Make the workload of a job from its request and, where that is silent, from the profile of its program."""

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
"""The GPU that a profile's hours are on."""
GB = 10**9
LARGE_GPU = 80 * GB
"""What the GPUs have that large models are trained on."""
WEIGHT = 4
"""Bytes of a parameter as it is saved."""
PIECES = 10
"""A program that saves, at times unknown, saves about so often."""
UNREAD = Profile()


def requested_resources(request: PlanRequest) -> Resources:
    """Return the effective resources; GPU types alone ask for one GPU."""
    need = effective_resources(request.tier, request.resources)
    return need.model_copy(update={"gpus": 1}) if request.gpu_types and not need.gpus else need


def make_workload(request: PlanRequest, profile: Profile = UNREAD, learned: Correction | None = None) -> Workload:
    """What the job is to the router. `learned` corrects what is read; what the request says counts as it is."""
    asked, spot = requested_resources(request), request.interruptible
    if spot is None:
        spot = request.market is Market.SPOT or bool(profile.interruptible.value)
    gpu = GpuNeed.REQUIRED if asked.gpus else profile.gpu.value or GpuNeed.NONE
    on_gpus = GpuMemory() if asked.gpu_memory_bytes or gpu is GpuNeed.NONE else _on_gpus(profile)
    need = asked.model_copy(update=_gpus(request, profile, gpu, on_gpus))
    compute = _stated(request, profile) or _read(profile, gpu, learned or Correction())
    return Workload(
        need=need,
        gpu=gpu,
        compute=compute,
        dataset_bytes=round((profile.dataset.value.gb or 0) * GB) if profile.dataset.value else 0,
        output_bytes=_saved(profile),
        checkpoint_seconds=_between(profile, compute),
        interruptible=spot,
        model_bytes=_model(profile),
        host=_host(asked, profile),
        host_is_least=profile.host_memory.confidence is Confidence.LOW,
        on_gpus=on_gpus,
        spread=_spread(request, profile, gpu),
        process_per_gpu=bool(profile.distribution.value and profile.distribution.value.needs_launcher),
    )


def _stated_gpus(request: PlanRequest) -> int:
    """How many GPUs it takes, by the request or the launcher; 0: not said."""
    return effective_resources(request.tier, request.resources).gpus or request.processes or 0


def _spread(request: PlanRequest, profile: Profile, gpu: GpuNeed) -> bool:
    told = _stated_gpus(request) or profile.gpus.value or request.hours is not None
    return not told and gpu is not GpuNeed.NONE and profile.distribution.value not in (None, Distribution.NONE)


def _gpus(request: PlanRequest, profile: Profile, gpu: GpuNeed, on_gpus: GpuMemory) -> dict[str, int]:
    """How many GPUs, and how much memory each, as far as the request has not said it."""
    if gpu is GpuNeed.NONE:
        return {}
    found: dict[str, int] = {}
    count = _stated_gpus(request) or profile.gpus.value or _fewest(on_gpus)
    if gpu is GpuNeed.REQUIRED and not effective_resources(request.tier, request.resources).gpus:
        found["gpus"] = max(count, 1)
    if on_gpus.whole:
        found["gpu_memory_bytes"] = on_gpus.per_gpu(count)
    return found


def _on_gpus(profile: Profile) -> GpuMemory:
    parts = profile.memory.value
    return GpuMemory((profile.gpu_memory_gb.value or 0) * GB, parts.sharded if parts is not None else 0.0)


def _fewest(on_gpus: GpuMemory) -> int:
    """Of a program that takes as many GPUs as there are and splits its model over them: so many as hold it."""
    if not on_gpus.sharded:
        return 1
    return next((gpus for gpus in (1, 2, 4, 8) if on_gpus.per_gpu(gpus) <= LARGE_GPU), 8)


def _stated(request: PlanRequest, profile: Profile) -> ComputeTime | None:
    """How long it takes by the request; its hours are those on its GPU type, if it names one."""
    if request.hours is None:
        return None
    gpu = request.gpu_types[0] if len(request.gpu_types) == 1 else ""
    precision = profile.precision.value.value if profile.precision.value else "fp32"
    return ComputeTime(request.hours * 3600, gpu, max(_stated_gpus(request), 1), precision, Confidence.HIGH)


def _read(profile: Profile, gpu: GpuNeed, learned: Correction) -> ComputeTime | None:
    hours = profile.runtime_hours
    if hours.value is None:
        return None
    seconds, sure = hours.value * 3600 * learned.factor, learned.confidence or hours.confidence
    precision = profile.precision.value.value if profile.precision.value else "fp32"
    on = REFERENCE if gpu is not GpuNeed.NONE else ""
    return with_load(ComputeTime(seconds, on, 1, precision, sure, shared=_is_shared(profile)), profile)


def _is_shared(profile: Profile) -> bool:
    """Whether its steps become fewer with more GPUs: they go over data, and are not counted out."""
    return profile.epochs.value is not None or profile.steps.assumed or profile.steps.value is None


def _saved(profile: Profile) -> int:
    """What is kept in the end: the weights and what the optimizer remembers of each."""
    if not profile.parameters.value:
        return 0
    state = profile.optimizer_bytes_per_parameter.value or 0
    return round(profile.parameters.value * (WEIGHT + state))


def _model(profile: Profile) -> int:
    """Without what a GPU's driver and libraries take."""
    parts = profile.memory.value
    return 0 if parts is None else round(parts.total - parts.workspace)


def _host(need: Resources, profile: Profile) -> HostMemory:
    """What its owner says stands. Where it is not sure, what it takes at the least."""
    found = profile.host_memory
    if found.value is None or need.memory_bytes:
        return HostMemory()
    return found.value.least if found.confidence is Confidence.LOW else found.value


def _between(profile: Profile, compute: ComputeTime | None) -> float | None:
    """Seconds from one checkpoint that it goes on from to the next."""
    if compute is None or not (profile.checkpointing.value and profile.resume.value):
        return None
    return compute.seconds / max(profile.epochs.value or PIECES, 1)
