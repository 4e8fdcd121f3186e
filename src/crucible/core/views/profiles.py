"""What was read of a program."""

from __future__ import annotations

import enum
from dataclasses import fields
from typing import Any

from pydantic import Field

from crucible.core.routing.profile import Confidence, Dataset, GpuNeed, HostMemory, Memory, Profile
from crucible.core.views.base import View


class EvidenceView(View):
    """A line of the program. In a notebook `file` names the cell and `line` counts within it."""

    file: str
    line: int
    text: str = ""


class MemoryView(View):
    """GPU memory by what takes it; of that `sharded_gb` is split where several GPUs share the work."""

    weights_gb: float = 0.0
    gradients_gb: float = 0.0
    optimizer_gb: float = 0.0
    activations_gb: float = 0.0
    workspace_gb: float = 0.0
    sharded_gb: float = 0.0


class HostMemoryView(View):
    """Memory of the machine by what takes it; `offloaded_gb` is what GPUs put there."""

    base_gb: float = 0.0
    model_gb: float = 0.0
    data_gb: float = 0.0
    workers_gb: float = 0.0
    offloaded_gb: float = 0.0


class DatasetView(View):
    """`gb` is its size on disk, `samples` what one epoch goes through; None is unknown."""

    name: str = ""
    samples: int | None = None
    gb: float | None = None


class ProfileView(View):
    """What was concluded, None where it is not known.

    By the name of a conclusion: how sure it is (`confidence`), the lines that show it (`evidence`), `why`, and in
    `unknown` the question that would settle it. `assumed` names those that no line shows. `notes`: what was wrong
    with the input.
    """

    frameworks: tuple[str, ...] | None = None
    gpu: GpuNeed | None = None
    gpus: int | None = None
    distribution: str | None = None
    model: str | None = None
    parameters: int | None = None
    trainable_parameters: int | None = None
    optimizer: str | None = None
    optimizer_bytes_per_parameter: float | None = None
    precision: str | None = None
    batch_size: int | None = None
    sequence_length: int | None = None
    image_size: int | None = None
    gpu_memory_gb: float | None = None
    memory: MemoryView | None = None
    host_memory_gb: float | None = None
    host_memory: HostMemoryView | None = None
    dataset: DatasetView | None = None
    epochs: int | None = None
    steps: int | None = None
    flops_per_step: float | None = None
    tf32_share: float | None = None
    runtime_hours: float | None = None
    checkpointing: bool | None = None
    resume: bool | None = None
    interruptible: bool | None = None
    network: bool | None = None
    entrypoint: str | None = None
    confidence: dict[str, Confidence] = Field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    evidence: dict[str, tuple[EvidenceView, ...]] = Field(default_factory=dict)
    why: dict[str, str] = Field(default_factory=dict)
    unknown: dict[str, str] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def from_profile(cls, profile: Profile) -> ProfileView:
        every = profile.conclusions()
        known = {name: each for name, each in every.items() if each.known}
        return cls(
            **{name: _shown(each.value) for name, each in every.items()},
            confidence={name: each.confidence for name, each in known.items()},
            assumed=tuple(name for name, each in known.items() if each.assumed),
            evidence={
                name: tuple(EvidenceView(file=line.file, line=line.line, text=line.text) for line in each.evidence)
                for name, each in known.items()
            },
            why={name: each.why for name, each in every.items() if each.why},
            unknown={name: each.question for name, each in every.items() if each.question},
            notes=profile.notes,
        )


def _shown(value: object) -> Any:
    """A value of a profile with the digits that are worth showing, memory in gigabytes."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Memory | HostMemory):
        return {f"{each.name}_gb": round(getattr(value, each.name) / 1e9, 3) for each in fields(value)}
    if isinstance(value, Dataset):
        return DatasetView(name=value.name, samples=value.samples, gb=_shown(value.gb))
    return value
