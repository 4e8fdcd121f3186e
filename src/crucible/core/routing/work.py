"""Work: what a job is to the router."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.core.profile import Confidence, GpuNeed
from crucible.core.resources import Resources


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
    a machine's memory where the processors do the work; 0: nobody knows.
    """

    need: Resources
    gpu: GpuNeed = GpuNeed.NONE
    compute: Compute | None = None
    dataset_bytes: int = 0
    output_bytes: int = 0
    checkpoint_seconds: float | None = None
    interruptible: bool = False
    model_bytes: int = 0
