"""GPU memory: weights, gradients, optimizer, activations and the overhead of libraries, each as its own number."""

from __future__ import annotations

from crucible.analysis.conclusions.compute.activations import FORWARD_ONLY, Work
from crucible.analysis.conclusions.facts import Seen
from crucible.core.routing.profile import Conclusion, Confidence, Distribution, GpuNeed, Memory, Precision, Profile

CONTEXT = 0.5e9
"""Bytes that a GPU's driver and libraries take before the first tensor."""

SLACK = 0.02
"""Memory lost to fragmentation in the allocator, as a share of the rest."""

SMALL = 0.01
"""Statistics of norms, indices and other small tensors that are not followed, as a share of the activations."""

_ORDER = [Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH]


def memory_of(learned: Profile, work: Work | None, training: bool, mixed: bool) -> Memory | None:
    """Return the parts in bytes, or None if the model is unknown. In mixed precision trainable weights stay in full
    precision.
    """
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
    """Return the total in GB, and the parts in bytes. `assumed` describes what had to be assumed."""
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
    text = ", ".join(f"{name} {value:.2f} GB" for name, value in _parts_in_gb(parts))
    why = text + (f". {work.why}" if work is not None else "") + (f" Assumed: {', '.join(assumed)}." if assumed else "")
    lines = learned.parameters.evidence
    total = Conclusion(round(parts.total / 1e9, 2), sure, lines, bool(assumed), why)
    return total, Conclusion(parts, sure, lines, bool(assumed), why)


def _parts_in_gb(parts: Memory) -> list[tuple[str, float]]:
    """Return the parts by name, in GB."""
    names = ("weights", "gradients", "optimizer", "activations", "workspace")
    parts_in_gb = [(name, getattr(parts, name) / 1e9) for name in names]
    return [*parts_in_gb, ("of that sharded over its GPUs", parts.sharded / 1e9)] if parts.sharded else parts_in_gb
