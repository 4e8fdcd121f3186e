"""Model plugins: the base class of models that are trained, run and measured by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Optional

from crucible.wire.models.options import BadSchema, Option, check_config, check_schema

METHODS = ("train", "infer", "benchmark")


class BadPlugin(Exception):
    """A plugin that cannot be used; the text says what to fix."""


@dataclass(frozen=True)
class ModelMetadata:
    """What users and the planner know about a model without running it. `min_gpu_memory_gb` 0: it needs no GPU."""

    name: str = ""
    version: str = ""
    description: str = ""
    framework: str = ""
    min_gpu_memory_gb: float = 0

    def __post_init__(self) -> None:
        for name in ("name", "version", "description", "framework"):
            if not isinstance(getattr(self, name), str):
                raise BadSchema(f"model_metadata: {name} is a text, not {getattr(self, name)!r:.80}")
        memory: object = self.min_gpu_memory_gb
        if isinstance(memory, bool) or not isinstance(memory, (int, float)) or not 0 <= memory < 100_000:
            raise BadSchema(f"model_metadata: min_gpu_memory_gb is a number of gigabytes, not {memory!r:.80}")


class BaseModel:
    """A model. Implement at least one of `train`, `infer` and `benchmark`; all else has a default.

    `schema` declares the options; without one any config is taken as it comes. A subclass with an `__init__`
    of its own gets the checked config as its only argument.
    """

    schema: ClassVar[Optional[Mapping[str, Option]]] = None
    model_metadata: ClassVar[ModelMetadata] = ModelMetadata()

    config: dict[str, Any]
    resume_from: Optional[Path] = None
    """The checkpoint to go on from, where there is one."""

    def __init__(self, config: Optional[Mapping[str, Any]] = None) -> None:
        """Raises BadConfig, which is a ValueError, for a config that the schema does not allow."""
        self.config = check_config(self.schema, config or {})

    def prepare_dataloaders(self, dataset: Optional[Path], config: Mapping[str, Any]) -> tuple[Any, Any]:
        """What `train` gets as its loaders. `dataset` is the job's input, the folder of several, or None."""
        return dataset, None

    def train(self, train_loader: Any, val_loader: Any, callbacks: Any) -> Any:
        """Trains, telling `callbacks.on_epoch_end(epoch, metrics)` and, for each checkpoint it wrote,
        `callbacks.on_checkpoint_save(epoch, path)`; epochs count from 0. What it returns, if anything, is the
        job's result.
        """
        raise NotImplementedError("this model cannot be trained")

    def infer(self, inputs: Any) -> Any:
        """What the model makes of the inputs: the job's result."""
        raise NotImplementedError("this model cannot infer")

    def benchmark(self) -> Mapping[str, Any]:
        """Names and what was measured: the job's result."""
        raise NotImplementedError("this model has no benchmark")

    def resume(self, path: Path) -> None:
        """Called before `train`, `infer` or `benchmark` when there is a checkpoint to start from."""
        self.resume_from = path

    def save(self, path: Path) -> None:
        """Optional: writes the state to `path`. Then a stop, or a wish for a checkpoint, saves one by itself."""
        raise NotImplementedError("this model does not save itself")

    def callbacks(self) -> Iterable[Any]:
        """Callbacks of the model's own, called after the platform's."""
        return ()


def implements(model: type[BaseModel], method: str) -> bool:
    """Whether the class has a `method` of its own."""
    return getattr(model, method, None) is not getattr(BaseModel, method)


def check_plugin(name: str, found: object) -> type[BaseModel]:
    """The class, if it is a plugin that can be used. Raises BadPlugin."""
    if not isinstance(found, type) or not issubclass(found, BaseModel):
        raise BadPlugin(f"{name}: {found!r:.200} is no subclass of crucible.BaseModel")
    try:
        if found.schema is not None:
            check_schema(found.schema)
    except BadSchema as error:
        raise BadPlugin(f"{name}: {error}") from error
    if not isinstance(found.model_metadata, ModelMetadata):
        raise BadPlugin(f"{name}: model_metadata is {type(found.model_metadata).__name__}, not a ModelMetadata")
    if not any(implements(found, method) for method in METHODS):
        raise BadPlugin(f"{name}: {found.__name__} has none of {', '.join(METHODS)}")
    return found


def describe_model(name: str, model: type[BaseModel]) -> dict[str, object]:
    """All that can be told of a plugin, as JSON."""
    schema = model.schema
    metadata = asdict(model.model_metadata)
    return {
        "name": name,
        "metadata": {**metadata, "name": metadata["name"] or name},
        "methods": [method for method in METHODS if implements(model, method)],
        "schema": None if schema is None else {key: option.as_json() for key, option in schema.items()},
    }
