"""Networks: objects of the program's own classes that derive from a framework's module."""

from __future__ import annotations

from crucible.analysis.values import Instance, Value

NETWORKS = frozenset(
    {
        "torch.nn.Module", "lightning.LightningModule", "lightning.pytorch.LightningModule", "torch.nn.Sequential",
        "keras.Model", "keras.layers.Layer", "keras.Layer", "keras.models.Model", "keras.Sequential",
        "flax.linen.Module",
        "tensorflow.Module", "flax.nnx.Module", "equinox.Module", "transformers.PreTrainedModel",
    }
)  # fmt: skip


def is_network(value: Value) -> bool:
    """An object of a class that derives from a framework's module."""
    return type(value) is Instance and not NETWORKS.isdisjoint(value.bases)
