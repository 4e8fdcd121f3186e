"""Workload: what a job needs, as routing sees it."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.core.compute.resources import Capacity, Resources
from crucible.core.routing.profile import Confidence, GpuNeed, HostMemory


@dataclass(frozen=True)
class ComputeTime:
    """How long it computes: `seconds` on `gpus` of type `gpu`. With no `gpu` it takes as long everywhere, unless its
    work was counted.
    """

    seconds: float
    gpu: str = ""
    gpus: int = 1
    precision: str = "fp32"
    confidence: Confidence = Confidence.MEDIUM
    shared: bool = True
    """Several GPUs share its steps; else each does all of them, with data of its own."""


@dataclass(frozen=True)
class GpuMemory:
    """GPU memory in bytes, as it was read: `whole` where one GPU does all, of which `sharded` is split over several."""

    whole: float = 0.0
    sharded: float = 0.0

    def per_gpu(self, gpus: int) -> int:
        return round(self.whole - self.sharded * (1 - 1 / max(gpus, 1)))


@dataclass(frozen=True)
class Workload:
    """`compute` None: nobody knows how long it takes. `checkpoint_seconds` None: what is interrupted begins anew.

    `interruptible` says whether it may be put where machines are taken back. `model_bytes` is what its model takes of
    a machine's memory where the processors do the work; 0: nobody knows. `host` is what each of its processes takes of
    the machine's memory wherever it runs, as far as that was read; with `process_per_gpu` each GPU has one.
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
    """What it takes of the machine's memory may be much more than `host`."""
    on_gpus: GpuMemory = GpuMemory()
    """Nothing where its owner says how much GPU memory it needs."""
    process_per_gpu: bool = False
    spread: bool = False
    """It shares its work among as many GPUs as it gets, and nobody said how many those are."""

    def gpus_on(self, has: Capacity) -> int:
        """How many GPUs it would use there: those it asks for, all if it takes as many as it gets, or one if it can."""
        if self.gpu is GpuNeed.NONE:
            return 0
        return len(has.gpus) if self.spread else min(max(self.need.gpus, 1), len(has.gpus))

    def gpu_memory_on(self, has: Capacity) -> int:
        """Bytes on each of the GPUs that it would use there; 0: nobody knows."""
        return self.on_gpus.per_gpu(self.gpus_on(has)) if self.on_gpus.whole else self.need.gpu_memory_bytes or 0

    def need_on(self, has: Capacity) -> Resources:
        """What it asks for to run there: of GPUs all, where it takes as many as it gets."""
        gpus = self.gpus_on(has) if self.spread and self.need.gpus else self.need.gpus
        return self.need.model_copy(update={"gpus": gpus, "gpu_memory_bytes": self.gpu_memory_on(has) or None})

    def memory_on(self, has: Capacity) -> int:
        """Bytes of a machine's own memory that it would take there, as it was read; 0: nothing is known of it."""
        used = self.gpus_on(has)
        if not used:
            return round(self.host.with_model(self.model_bytes).total)
        return round(self.host.of_processes(used if self.process_per_gpu else 1))
