"""Runtime on a reference machine: arithmetic, memory traffic and a fixed overhead per step.

Checked against published runs by `python -m benchmarks.analysis --published`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crucible.analysis.conclusions.compute.activations import Work
from crucible.analysis.conclusions.facts import Seen
from crucible.core.compute.gpus import find_gpu
from crucible.core.routing.profile import Conclusion, Confidence, GpuNeed, Memory, Precision, Profile
from crucible.core.routing.roofline import CORES, Roof, cpu_roof, gpu_roof, make_load

_ORDER = [Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH]


@dataclass(frozen=True)
class Reference:
    """The hardware that runtimes refer to, with what programs reach on it in each precision."""

    name: str
    roofs: Mapping[Precision, Roof]


def reference_gpu(name: str) -> Reference:
    """Return the GPU of this name as a reference."""
    found = find_gpu(name)
    return Reference(found.name, {each: gpu_roof(found, each.value) for each in Precision})


T4 = reference_gpu("T4")
CPU = Reference(f"{CORES} CPU cores", dict.fromkeys(Precision, cpu_roof(CORES)))


def runtime(
    seen: Seen, learned: Profile, reference: Reference, steps: Conclusion[int], work: Work | None, parts: Memory | None
) -> Conclusion[float]:
    """Return the hours of the run without loading data: on the reference GPU, or on CPU cores if it uses no GPU."""
    hardware = reference if learned.gpu.value is not GpuNeed.NONE else CPU
    if steps.value is None or work is None or parts is None:
        return seen.ask("How long does it run today, and on what?")
    reached = hardware.roofs[learned.precision.value or Precision.FP32]
    seconds = steps.value * reached.seconds(make_load(work.flops, parts, learned.tf32_share.value or 0.0))
    sure = min(Confidence.MEDIUM, work.confidence, steps.confidence, key=_ORDER.index)
    why = f"{steps.value:,} steps of {seconds / steps.value:.3g} s on {hardware.name}, without loading data."
    if not learned.gpus.known and hardware is reference:
        why += f" One {hardware.name} is assumed: {learned.gpus.question}"
    if steps.assumed:
        why += f" {steps.why}"
    return Conclusion(seconds / 3600, sure, steps.evidence, steps.assumed, why)
