"""GPU memory: weights, gradients, optimizer, activations and what libraries take, each told."""

from __future__ import annotations

from crucible.analysis.conclusions.compute.activations import FORWARD_ONLY, Work
from crucible.analysis.conclusions.facts import Seen
from crucible.core.routing.profile import Conclusion, Confidence, Distribution, GpuNeed, Memory, Precision, Profile

CONTEXT = 0.5e9
"""What a GPU's driver and the libraries take before the first tensor."""

SLACK = 0.02
"""What the allocator cannot hand out again, as a share of the rest."""

SMALL = 0.01
"""Statistics of norms, indices and the like that are not followed one by one, as a share of the activations."""

_ORDER = [Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH]


def memory_of(learned: Profile, work: Work | None, training: bool, mixed: bool) -> Memory | None:
    """In bytes; None where the model is unknown. With mixed precision the weights that learn stay in full precision."""
    if learned.parameters.value is None:
        return None
    half = learned.precision.value or Precision.FP32
    item = 4.0 if mixed or half in (Precision.FP32, Precision.TF32) else half.bytes
    trainable = learned.trainable_parameters.value or 0
    frozen = learned.parameters.value - trainable
    weights = frozen * item + trainable * (4.0 if training and (mixed or item < 2) else item)
    kept = work.kept * (1 + SMALL) if work is not None else 0.0
    gradients = trainable * max(2.0, 4.0 if mixed else item) if training else 0.0
    states = trainable * (learned.optimizer_bytes_per_parameter.value or 0.0) if training else 0.0
    activations = kept if training else kept * FORWARD_ONLY
    rest = weights + gradients + states + activations
    shared = weights + gradients + states if learned.distribution.value is Distribution.FSDP else 0.0
    return Memory(weights, gradients, states, activations, CONTEXT + SLACK * rest, shared)


def gpu_memory(
    seen: Seen, learned: Profile, parts: Memory | None, work: Work | None, assumed: list[str]
) -> tuple[Conclusion[float], Conclusion[Memory]]:
    if learned.gpu.value is GpuNeed.NONE:
        return seen.say(0.0, (), Confidence.HIGH, "It uses no GPU."), seen.say(Memory(), ())
    if parts is None:
        question = learned.parameters.question or "How much GPU memory does it use?"
        return seen.ask(question), seen.ask(question)
    sure = learned.parameters.confidence
    if work is not None:
        sure = min(sure, work.confidence, key=_ORDER.index)
    if assumed:
        sure = Confidence.LOW
    told = ", ".join(f"{name} {value:.2f} GB" for name, value in _told(parts))
    why = told + (f". {work.why}" if work is not None else "") + (f" Assumed: {', '.join(assumed)}." if assumed else "")
    lines = learned.parameters.evidence
    shown = Conclusion(round(parts.total / 1e9, 2), sure, lines, bool(assumed), why)
    return shown, Conclusion(parts, sure, lines, bool(assumed), why)


def _told(parts: Memory) -> list[tuple[str, float]]:
    names = ("weights", "gradients", "optimizer", "activations", "workspace")
    told = [(name, getattr(parts, name) / 1e9) for name in names]
    return [*told, ("of that split over its GPUs", parts.sharded / 1e9)] if parts.sharded else told
