"""The profile of a program: what reading its code tells about its needs.

Every conclusion carries its confidence, the lines that show it and whether it is an assumption. A conclusion that
cannot be drawn has no value, but the question to the user that would settle it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Generic, TypeVar

T = TypeVar("T")


class Confidence(enum.StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


_WEAK = tuple(Confidence)


def weaker(one: Confidence, other: Confidence) -> Confidence:
    """Return the lower of two confidences: that of a result which needs both."""
    return max(one, other, key=_WEAK.index)


class GpuNeed(enum.StrEnum):
    """Whether the program uses a GPU: never, if one is there, or it fails without one."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


class Distribution(enum.StrEnum):
    NONE = "none"
    DATA_PARALLEL = "data_parallel"
    DDP = "ddp"
    FSDP = "fsdp"
    DEEPSPEED = "deepspeed"
    HOROVOD = "horovod"
    ACCELERATE = "accelerate"
    LIGHTNING = "lightning"
    TF_STRATEGY = "tf_strategy"
    JAX_PMAP = "jax_pmap"
    RAY = "ray"
    RPC = "rpc"
    TENSOR_PARALLEL = "tensor_parallel"

    @property
    def needs_launcher(self) -> bool:
        """Whether a launcher such as torchrun has to start a process for each GPU."""
        return self in (
            Distribution.DDP,
            Distribution.FSDP,
            Distribution.DEEPSPEED,
            Distribution.HOROVOD,
            Distribution.TENSOR_PARALLEL,
        )


class Precision(enum.StrEnum):
    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    INT4 = "int4"

    @property
    def bytes(self) -> float:
        return {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "int8": 1, "int4": 0.5}[self.value]


class Entrypoint(enum.StrEnum):
    SCRIPT = "script"
    NOTEBOOK = "notebook"
    MODULE = "module"
    """Only definitions: running the file does nothing useful."""

    SERVICE = "service"


@dataclass(frozen=True)
class Evidence:
    """A line of the program. In a notebook `file` names the cell and `line` counts within it."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Conclusion(Generic[T]):
    """One property of the program; a value of None is unknown. `question` asks the user for what is still open."""

    value: T | None = None
    confidence: Confidence = Confidence.LOW
    evidence: tuple[Evidence, ...] = ()
    assumed: bool = False
    why: str = ""
    question: str = ""

    @property
    def known(self) -> bool:
        return self.value is not None


@dataclass(frozen=True)
class Memory:
    """GPU memory in bytes, by use. `workspace` is overhead of libraries and the allocator.

    `sharded` is how much of the total is split when several GPUs share the work; each holds the rest in full.
    """

    weights: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    activations: float = 0.0
    workspace: float = 0.0
    sharded: float = 0.0

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.activations + self.workspace


@dataclass(frozen=True)
class HostMemory:
    """Host memory in bytes, for one process and its subprocesses (data loaders, workers that fit).

    `base` is the interpreter with its libraries; `model` the whole model if the CPU does the work, else its weights on
    their way to the GPU. `offloaded` is what GPUs move to the host, once for all processes of a machine. `data` counts
    `COPIES` times: itself, and the copy that is shuffled, split, scaled or converted to floats.
    """

    COPIES: ClassVar[int] = 2

    base: float = 0.0
    model: float = 0.0
    data: float = 0.0
    workers: float = 0.0
    offloaded: float = 0.0

    @property
    def total(self) -> float:
        return self.of_processes(1)

    def of_processes(self, count: int) -> float:
        return count * (self.base + self.model + self.data + self.workers) + self.offloaded

    @property
    def least(self) -> HostMemory:
        """The certain minimum: each array once, and no subprocesses."""
        return replace(self, data=self.data / self.COPIES, workers=0.0)

    def with_model(self, size: float) -> HostMemory:
        """Return the same with a model of at least this size in bytes."""
        return replace(self, model=max(self.model, size))


@dataclass(frozen=True)
class Dataset:
    """`gb` is its size on disk, `samples` the number of samples in an epoch; None: unknown."""

    name: str
    samples: int | None = None
    gb: float | None = None


@dataclass(frozen=True)
class Profile:
    frameworks: Conclusion[tuple[str, ...]] = Conclusion()
    gpu: Conclusion[GpuNeed] = Conclusion()
    gpus: Conclusion[int] = Conclusion()
    distribution: Conclusion[Distribution] = Conclusion()
    model: Conclusion[str] = Conclusion()
    parameters: Conclusion[int] = Conclusion()
    trainable_parameters: Conclusion[int] = Conclusion()
    optimizer: Conclusion[str] = Conclusion()
    optimizer_bytes_per_parameter: Conclusion[float] = Conclusion()
    precision: Conclusion[Precision] = Conclusion()
    batch_size: Conclusion[int] = Conclusion()
    sequence_length: Conclusion[int] = Conclusion()
    image_size: Conclusion[int] = Conclusion()
    gpu_memory_gb: Conclusion[float] = Conclusion()
    memory: Conclusion[Memory] = Conclusion()
    host_memory_gb: Conclusion[float] = Conclusion()
    host_memory: Conclusion[HostMemory] = Conclusion()
    dataset: Conclusion[Dataset] = Conclusion()
    epochs: Conclusion[int] = Conclusion()
    steps: Conclusion[int] = Conclusion()
    flops_per_step: Conclusion[float] = Conclusion()
    tf32_share: Conclusion[float] = Conclusion()
    """The share of these FLOPs that GPUs with TF32 run in TF32, though the program uses 32-bit floats."""

    runtime_hours: Conclusion[float] = Conclusion()
    """On the reference GPU that its `why` names."""

    checkpointing: Conclusion[bool] = Conclusion()
    resume: Conclusion[bool] = Conclusion()
    interruptible: Conclusion[bool] = Conclusion()
    network: Conclusion[bool] = Conclusion()
    entrypoint: Conclusion[Entrypoint] = Conclusion()
    notes: tuple[str, ...] = field(default=())
    """Problems with the input, for the user to read."""

    def conclusions(self) -> dict[str, Conclusion[object]]:
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in found.items() if isinstance(value, Conclusion)}
