"""The profile of a program."""

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
    """GPU memory by use; `sharded_gb` is the part that is split when several GPUs share the work."""

    weights_gb: float = 0.0
    gradients_gb: float = 0.0
    optimizer_gb: float = 0.0
    activations_gb: float = 0.0
    workspace_gb: float = 0.0
    sharded_gb: float = 0.0


class HostMemoryView(View):
    """Host memory by use; `offloaded_gb` is what GPUs move to the host."""

    base_gb: float = 0.0
    model_gb: float = 0.0
    data_gb: float = 0.0
    workers_gb: float = 0.0
    offloaded_gb: float = 0.0


class DatasetView(View):
    """`gb` is its size on disk, `samples` the number of samples in an epoch; None: unknown."""

    name: str = ""
    samples: int | None = None
    gb: float | None = None


class ProfileView(View):
    """The conclusions, None if unknown.

    By the name of a conclusion: its `confidence`, the lines that show it (`evidence`), `why`, and in `unknown` the
    question that would settle it. `assumed` names those that no line shows. `notes`: problems of the input.
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
            **{name: _rounded(each.value) for name, each in every.items()},
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


def _rounded(value: object) -> Any:
    """Return a value of a profile for display: rounded, and memory in gigabytes."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Memory | HostMemory):
        return {f"{each.name}_gb": round(getattr(value, each.name) / 1e9, 3) for each in fields(value)}
    if isinstance(value, Dataset):
        return DatasetView(name=value.name, samples=value.samples, gb=_rounded(value.gb))
    return value
