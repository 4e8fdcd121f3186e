"""Work: what a job is to the router."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.core.profile import Confidence, GpuNeed, HostMemory
from crucible.core.resources import Capacity, Resources


@dataclass(frozen=True)
class Compute:
    """How long it computes: `seconds` on `gpus` of type `gpu`. With no `gpu` it takes as long everywhere, unless its
    work was counted.
    """

    seconds: float
    gpu: str = ""
    gpus: int = 1
    precision: str = "fp32"
    confidence: Confidence = Confidence.MEDIUM


@dataclass(frozen=True)
class Work:
    """`compute` None: nobody knows how long it takes. `checkpoint_seconds` None: what is interrupted begins anew.

    `interruptible` says whether it may be put where machines are taken back. `model_bytes` is what its model takes of
    a machine's memory where the processors do the work; 0: nobody knows. `host` is what each of its processes takes of
    the machine's memory wherever it runs, as far as that was read; with `process_per_gpu` each GPU has one.
    """

    need: Resources
    gpu: GpuNeed = GpuNeed.NONE
    compute: Compute | None = None
    dataset_bytes: int = 0
    output_bytes: int = 0
    checkpoint_seconds: float | None = None
    interruptible: bool = False
    model_bytes: int = 0
    host: HostMemory = HostMemory()
    process_per_gpu: bool = False
    spread: bool = False
    """It shares its work among as many GPUs as it gets, and nobody said how many those are."""

    def gpus_on(self, has: Capacity) -> int:
        """How many GPUs it would use there: those it asks for, all if it takes as many as it gets, or one if it can."""
        if self.gpu is GpuNeed.NONE:
            return 0
        return len(has.gpus) if self.spread else min(max(self.need.gpus, 1), len(has.gpus))

    def memory_on(self, has: Capacity) -> int:
        """Bytes of a machine's own memory that it would take there, as it was read; 0: nothing is known of it."""
        used = self.gpus_on(has)
        if not used:
            return round(self.host.with_model(self.model_bytes).total)
        return round(self.host.of_processes(used if self.process_per_gpu else 1))
