"""Roofline: how long counted work takes on a GPU, from its arithmetic and its traffic to memory.

The constants were found over published runs; `python -m benchmarks.analysis --published` sets them beside those.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from types import MappingProxyType

from crucible.core.compute.gpus import Dtype, Gpu
from crucible.core.routing.profile import Memory, Profile
from crucible.core.routing.workload import ComputeTime

REACHED = MappingProxyType({Dtype.FP32: 0.47, Dtype.TF32: 0.38, Dtype.FP16: 0.45, Dtype.BF16: 0.45, Dtype.FP8: 0.35})
"""The share of a sheet's peak that training reaches in each format."""
BANDWIDTH_REACHED = 0.8
PASSES = 15.5
"""How often what backward keeps goes over the memory bus: written, read by the next layers, by norms and activations
that are kernels of their own, and all that again on the way back."""
STATE_PASSES = 2.0
"""Weights, gradients and the optimizer's state are read and written."""
STEP_SECONDS = 0.004
"""Python and the launches of kernels, whatever the size of the model and however fast the GPU."""
CORE_FLOPS = 25e9
CORE_BANDWIDTH = 5e9
"""Of a processor of a rented machine, as programs reach it."""
CORES = 8
"""How many processors the time of a program is told for that uses no GPU."""


@dataclass(frozen=True)
class Load:
    """One step: FLOPs forward and backward, and bytes to and from memory.

    `tf32` of the FLOPs are done in TF32 where a program in 32 bits meets a GPU that has it.
    """

    flops: float
    traffic: float
    tf32: float = 0.0


@dataclass(frozen=True)
class Roof:
    """What programs reach: FLOP/s and bytes/s, and FLOP/s of what is done in TF32; None: as fast as the rest."""

    flops: float
    bandwidth: float
    tf32: float | None = None

    def seconds(self, load: Load) -> float:
        """Of a step. Kernels that compute and kernels that copy overlap: between the longer of both and their sum."""
        arithmetic = (load.flops - load.tf32) / self.flops + load.tf32 / (self.tf32 or self.flops)
        return math.hypot(arithmetic, load.traffic / self.bandwidth) + STEP_SECONDS


@dataclass(frozen=True)
class CountedComputeTime(ComputeTime):
    """Work that was counted: another GPU is as much faster as it is at this work."""

    load: Load = Load(0.0, 0.0)


def gpu_roof(gpu: Gpu, precision: str) -> Roof:
    """A format that a GPU has no fast way for is computed as 32 bits."""
    dtype = next((dtype for dtype in gpu.flops if dtype.value == precision), Dtype.FP32)
    faster = precision == Dtype.FP32.value and gpu.vendor == "NVIDIA" and Dtype.TF32 in gpu.flops
    tf32 = gpu.flops[Dtype.TF32] * REACHED[Dtype.TF32] if faster else None
    return Roof(gpu.flops[dtype] * REACHED[dtype], gpu.bandwidth * BANDWIDTH_REACHED, tf32)


def cpu_roof(cpus: float) -> Roof:
    return Roof(cpus * CORE_FLOPS, cpus * CORE_BANDWIDTH)


def make_load(flops: float, memory: Memory, tf32_share: float = 0.0) -> Load:
    states = memory.weights + memory.gradients + memory.optimizer
    return Load(flops, PASSES * memory.activations + STATE_PASSES * states, flops * tf32_share)


def with_load(compute: ComputeTime, profile: Profile) -> ComputeTime:
    """With its load, where the program told it."""
    flops, memory = profile.flops_per_step.value, profile.memory.value
    if not flops or memory is None:
        return compute
    return CountedComputeTime(**asdict(compute), load=make_load(flops, memory, profile.tf32_share.value or 0.0))
