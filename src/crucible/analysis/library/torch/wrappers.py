"""Wrappers that let a training loop run on many machines, and return what they are given."""

from __future__ import annotations

from collections.abc import Callable

from crucible.analysis.library.call import Asked
from crucible.analysis.library.torch.methods import backward
from crucible.analysis.values.values import Value


def _prepared(asked: Asked) -> Value:
    """Return the argument, or several arguments as a tuple in their order."""
    return asked.args[0] if len(asked.args) == 1 else asked.args


def _backward(asked: Asked) -> Value:
    backward(asked.machine)
    return None


HANDLERS: dict[str, Callable[[Asked], Value]] = {
    **{f"accelerate.Accelerator.{name}": _prepared for name in (
        "prepare", "prepare_model", "prepare_optimizer", "prepare_data_loader", "prepare_scheduler", "unwrap_model",
    )},
    "accelerate.Accelerator.backward": _backward,
    **{f"lightning.Fabric.{name}": _prepared for name in (
        "setup", "setup_module", "setup_optimizers", "setup_dataloaders",
    )},
    "lightning.Fabric.backward": _backward,
}  # fmt: skip
