"""Names of libraries in their best-known form, however the program imported them."""

from __future__ import annotations

import functools

from crucible.analysis.values.values import Name, named

_SAME = {
    "tensorflow.keras": "keras",
    "tensorflow.python.keras": "keras",
    "tensorflow.compat.v1.keras": "keras",
    "tensorflow.compat.v1": "tensorflow",
    "tensorflow.compat.v2": "tensorflow",
    "tf_keras": "keras",
    "keras.src": "keras",
    "keras.api": "keras",
    "pytorch_lightning": "lightning",
    "lightning.pytorch": "lightning",
    "lightning.pl": "lightning",
    "lightning_fabric": "lightning.fabric",
    "torch.nn.modules.activation": "torch.nn",
    "torch.nn.modules": "torch.nn",
    "torch.nn.parallel.distributed": "torch.nn.parallel",
    "torch.utils.data.dataloader": "torch.utils.data",
    "torch.utils.data.dataset": "torch.utils.data",
    "torch.optim.adamw": "torch.optim",
    "flax.nn": "flax.linen",
    "jax.np": "jax.numpy",
    "torch.functional": "torch.nn.functional",
    "pathlib.PosixPath": "pathlib.Path",
    "pathlib.PurePath": "pathlib.Path",
    "keras.engine": "keras",
    "keras.utils.data_utils": "keras.utils",
}
_LONGEST = sorted(_SAME, key=len, reverse=True)
_FIRST = frozenset(name.partition(".")[0] for name in _SAME)


@functools.lru_cache(maxsize=8192)
def canonical(path: str) -> str:
    """Return the best-known path: `keras.layers.Dense` for `tf.keras.layers.Dense`."""
    if path.partition(".")[0] not in _FIRST:
        return path
    for prefix in _LONGEST:
        if path == prefix or path.startswith(f"{prefix}."):
            return _SAME[prefix] + path[len(prefix) :]
    return path


@functools.lru_cache(maxsize=8192)
def member_of(path: str, name: str) -> Name:
    """Return the best-known name of `path.name`."""
    return named(canonical(f"{path}.{name}"))
