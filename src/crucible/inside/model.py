"""The base class of model plugins: models that are trained, run and benchmarked by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Optional

from crucible.wire.models.options import BadSchema, Option, check_config, check_schema

METHODS = ("train", "infer", "benchmark")


class BadPlugin(Exception):
    """A plugin that cannot be used; the message says what to fix."""


@dataclass(frozen=True)
class ModelMetadata:
    """Facts about a model for users and the planner, without running it. `min_gpu_memory_gb` 0: it needs no GPU."""

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
    """A model. Implement at least one of `train`, `infer` and `benchmark`; everything else has a default.

    `schema` declares the options; without one any config is accepted unchecked. A subclass with its own `__init__`
    gets the checked config as its only argument.
    """

    schema: ClassVar[Optional[Mapping[str, Option]]] = None
    model_metadata: ClassVar[ModelMetadata] = ModelMetadata()

    config: dict[str, Any]
    resume_from: Optional[Path] = None
    """The checkpoint to resume from, or None."""

    def __init__(self, config: Optional[Mapping[str, Any]] = None) -> None:
        """Store the checked config. Raises BadConfig, which is a ValueError, if the schema does not allow it."""
        self.config = check_config(self.schema, config or {})

    def prepare_dataloaders(self, dataset: Optional[Path], config: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the loaders for `train`. `dataset` is the job's input, the folder of several inputs, or None."""
        return dataset, None

    def train(self, train_loader: Any, val_loader: Any, callbacks: Any) -> Any:
        """Train. Call `callbacks.on_epoch_end(epoch, metrics)` and, for each checkpoint that was written,
        `callbacks.on_checkpoint_save(epoch, path)`; epochs count from 0. The return value, if any, is the job's result.
        """
        raise NotImplementedError("this model cannot be trained")

    def infer(self, inputs: Any) -> Any:
        """Return the model's output for the inputs: the job's result."""
        raise NotImplementedError("this model cannot infer")

    def benchmark(self) -> Mapping[str, Any]:
        """Return measurements by name: the job's result."""
        raise NotImplementedError("this model has no benchmark")

    def resume(self, path: Path) -> None:
        """Prepare to start from a checkpoint. Called before `train`, `infer` or `benchmark` if there is one."""
        self.resume_from = path

    def save(self, path: Path) -> None:
        """Optional: write the state to `path`. The platform then saves on a stop or a requested checkpoint."""
        raise NotImplementedError("this model does not save itself")

    def callbacks(self) -> Iterable[Any]:
        """Return the model's own callbacks, which are called after the platform's."""
        return ()


def implements(model: type[BaseModel], method: str) -> bool:
    """Return whether the class overrides the method."""
    return getattr(model, method, None) is not getattr(BaseModel, method)


def check_plugin(name: str, found: object) -> type[BaseModel]:
    """Return the class if it is a usable plugin. Raises BadPlugin."""
    if not isinstance(found, type) or not issubclass(found, BaseModel):
        raise BadPlugin(f"{name}: {found!r:.200} is not a subclass of crucible.BaseModel")
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
    """Return the description of a plugin, as JSON."""
    schema = model.schema
    metadata = asdict(model.model_metadata)
    return {
        "name": name,
        "metadata": {**metadata, "name": metadata["name"] or name},
        "methods": [method for method in METHODS if implements(model, method)],
        "schema": None if schema is None else {key: option.as_json() for key, option in schema.items()},
    }
