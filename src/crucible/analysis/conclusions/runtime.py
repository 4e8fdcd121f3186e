"""How long it runs on a named reference: arithmetic or memory traffic, whichever is slower, and a little per step."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.analysis.conclusions.activations import Work
from crucible.analysis.conclusions.seen import Seen
from crucible.core.profile import Conclusion, Confidence, GpuNeed, Memory, Precision, Profile

STEP_SECONDS = 0.004
"""Python, kernel launches and the optimizer, whatever the size of the model."""

_ORDER = [Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH]


@dataclass(frozen=True)
class Reference:
    """A place to measure by: FLOP/s in full and in half precision, bytes/s of its memory, the share programs reach."""

    name: str
    full: float
    half: float
    bandwidth: float
    reached: float = 0.45


T4 = Reference("T4", 8.1e12, 65e12, 320e9)
CPU = Reference("8 CPU cores", 0.4e12, 0.4e12, 40e9, 0.5)


def runtime(
    seen: Seen, learned: Profile, reference: Reference, steps: Conclusion[int], work: Work | None, parts: Memory | None
) -> Conclusion[float]:
    place = reference if learned.gpu.value is not GpuNeed.NONE else CPU
    if steps.value is None or work is None or parts is None:
        return seen.ask("How long does it run today, and on what?")
    quick = learned.precision.value in (Precision.FP16, Precision.BF16)
    peak = place.half * 0.6 if quick else place.full
    arithmetic = work.flops / (peak * place.reached)
    traffic = 2.0 * (parts.total - parts.workspace) / place.bandwidth
    seconds = steps.value * (max(arithmetic, traffic) + STEP_SECONDS)
    sure = min(Confidence.MEDIUM, work.confidence, steps.confidence, key=_ORDER.index)
    why = f"{steps.value:,} steps of {seconds / steps.value:.3g} s on {place.name}, without loading data."
    if steps.assumed:
        why += f" {steps.why}"
    return Conclusion(seconds / 3600, sure, steps.evidence, steps.assumed, why)
