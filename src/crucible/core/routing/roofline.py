"""The roofline model: how long counted work takes on a GPU, from its arithmetic and its memory traffic.

The constants were fitted to published runs; `python -m benchmarks.analysis --published` compares the model with them.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from types import MappingProxyType

from crucible.core.compute.gpus import Dtype, Gpu
from crucible.core.routing.profile import Memory, Profile
from crucible.core.routing.workload import ComputeTime

REACHED = MappingProxyType({Dtype.FP32: 0.47, Dtype.TF32: 0.38, Dtype.FP16: 0.45, Dtype.BF16: 0.45, Dtype.FP8: 0.35})
"""The share of the data sheet's peak that training reaches in each format."""
BANDWIDTH_REACHED = 0.8
PASSES = 15.5
"""How often activations kept for the backward pass cross the memory bus: written, read by the next layers, by norms and
activations with kernels of their own, and all that again in the backward pass."""
STATE_PASSES = 2.0
"""Weights, gradients and optimizer state are each read and written once a step."""
STEP_SECONDS = 0.004
"""Overhead of Python and kernel launches per step, whatever the model and the GPU."""
CORE_FLOPS = 25e9
CORE_BANDWIDTH = 5e9
"""FLOP/s and bytes/s that programs reach on one CPU of a rented machine."""
CORES = 8
"""The number of CPUs that the runtime of a program without a GPU refers to."""


@dataclass(frozen=True)
class Load:
    """The work of one step: FLOPs forward and backward, and bytes to and from memory.

    `tf32` is the part of the FLOPs that a 32-bit program runs in TF32 on a GPU that supports it.
    """

    flops: float
    traffic: float
    tf32: float = 0.0


@dataclass(frozen=True)
class Roof:
    """The speed that programs reach: FLOP/s, bytes/s, and FLOP/s in TF32 (None: the same as `flops`)."""

    flops: float
    bandwidth: float
    tf32: float | None = None

    def seconds(self, load: Load) -> float:
        """Return the seconds of a step: as compute and copy kernels overlap, between the longer time and the sum."""
        arithmetic = (load.flops - load.tf32) / self.flops + load.tf32 / (self.tf32 or self.flops)
        return math.hypot(arithmetic, load.traffic / self.bandwidth) + STEP_SECONDS


@dataclass(frozen=True)
class CountedComputeTime(ComputeTime):
    """Compute time of counted work: the time on another GPU follows from its time for `load`."""

    load: Load = Load(0.0, 0.0)


def gpu_roof(gpu: Gpu, precision: str) -> Roof:
    """Return the roof of a GPU; a format that it has no fast path for is computed in 32 bits."""
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
    """Return the compute time with its load, if the profile has counted it."""
    flops, memory = profile.flops_per_step.value, profile.memory.value
    if not flops or memory is None:
        return compute
    return CountedComputeTime(**asdict(compute), load=make_load(flops, memory, profile.tf32_share.value or 0.0))
