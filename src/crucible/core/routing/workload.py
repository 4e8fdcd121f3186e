"""The workload of a job: what routing needs to know about it."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.core.compute.resources import Capacity, Resources
from crucible.core.routing.profile import Confidence, GpuNeed, HostMemory


@dataclass(frozen=True)
class ComputeTime:
    """How long a job computes: `seconds` on `gpus` GPUs of type `gpu`.

    With an empty `gpu` it takes as long on any machine, unless its work was counted.
    """

    seconds: float
    gpu: str = ""
    gpus: int = 1
    precision: str = "fp32"
    confidence: Confidence = Confidence.MEDIUM
    shared: bool = True
    """Several GPUs share the steps; otherwise each runs all of them on data of its own."""


@dataclass(frozen=True)
class GpuMemory:
    """Bytes of GPU memory, read from the program: `whole` on a single GPU, of which several GPUs split `sharded`."""

    whole: float = 0.0
    sharded: float = 0.0

    def per_gpu(self, gpus: int) -> int:
        return round(self.whole - self.sharded * (1 - 1 / max(gpus, 1)))


@dataclass(frozen=True)
class Workload:
    """`compute` None: the runtime is unknown. `checkpoint_seconds` None: an interrupted job starts over.

    `interruptible` says whether it may run on machines that can be reclaimed. `model_bytes` is the host memory of its
    model if the CPUs do the work; 0: unknown. `host` is the host memory of each of its processes as far as it was read;
    with `process_per_gpu` there is one process for each GPU.
    """

    need: Resources
    gpu: GpuNeed = GpuNeed.NONE
    compute: ComputeTime | None = None
    dataset_bytes: int = 0
    output_bytes: int = 0
    checkpoint_seconds: float | None = None
    interruptible: bool = False
    model_bytes: int = 0
    host: HostMemory = HostMemory()
    host_is_least: bool = False
    """The real need of host memory may be much more than `host`."""
    on_gpus: GpuMemory = GpuMemory()
    """Empty if the request states the GPU memory."""
    process_per_gpu: bool = False
    spread: bool = False
    """It uses all GPUs of a machine, and no number was requested."""

    def gpus_on(self, has: Capacity) -> int:
        """Return how many GPUs it would use there: as many as requested, all with `spread`, or one if any helps."""
        if self.gpu is GpuNeed.NONE:
            return 0
        return len(has.gpus) if self.spread else min(max(self.need.gpus, 1), len(has.gpus))

    def gpu_memory_on(self, has: Capacity) -> int:
        """Return the bytes needed on each GPU it would use there; 0: unknown."""
        return self.on_gpus.per_gpu(self.gpus_on(has)) if self.on_gpus.whole else self.need.gpu_memory_bytes or 0

    def need_on(self, has: Capacity) -> Resources:
        """Return the resources it needs there: with `spread`, all GPUs."""
        gpus = self.gpus_on(has) if self.spread and self.need.gpus else self.need.gpus
        return self.need.model_copy(update={"gpus": gpus, "gpu_memory_bytes": self.gpu_memory_on(has) or None})

    def memory_on(self, has: Capacity) -> int:
        """Return the bytes of host memory that it would take there, as read from the program; 0: unknown."""
        used = self.gpus_on(has)
        if not used:
            return round(self.host.with_model(self.model_bytes).total)
        return round(self.host.of_processes(used if self.process_per_gpu else 1))
