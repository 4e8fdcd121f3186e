"""Data as Keras receives it: elements of datasets, and networks that are built on the first data they get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from crucible.analysis.interpreter.iteration import length_of
from crucible.analysis.library.arrays import dims
from crucible.analysis.library.call import Asked
from crucible.analysis.library.data.datasets import TF_DATASET as DATASET
from crucible.analysis.library.data.datasets import batched
from crucible.analysis.library.keras.layers import FED, NETWORKS
from crucible.analysis.values.values import UNKNOWN, Instance, Tensor, Thing, Value, settled, whole, worded

FOLDERS = tuple(
    f"keras.{where}.image_dataset_from_directory" for where in ("utils", "preprocessing", "preprocessing.image")
)
_SIDE = 256
_CHANNELS = {"rgb": 3, "rgba": 4, "grayscale": 1}
_SAME = ("shuffle", "prefetch", "cache", "with_options", "take", "skip", "shard", "ignore_errors")


def _dataset(asked: Asked, like: Value, length: int | None) -> Thing:
    """Return a dataset with elements like `like`."""
    made = Thing(DATASET, asked.args, asked.kwargs, asked.machine.line, {"like": like})
    if length is not None:
        made.attrs["length"] = length
    made.attrs["data"] = made
    return made


def _folder(asked: Asked) -> Value:
    """Return a dataset of the images of a folder, resized to one size."""
    size = dims(asked.kwargs.get("image_size", (_SIDE, _SIDE))) or (UNKNOWN, UNKNOWN)
    channels = _CHANNELS.get(worded(asked.kwargs.get("color_mode", "rgb")), UNKNOWN)
    count = settled(asked.kwargs.get("batch_size", 32))
    sizes = (*size, channels) if count is None else (UNKNOWN, *size, channels)
    made = _dataset(asked, (Tensor(sizes, library="keras"), Tensor(None, "int32", library="keras")), None)
    return (made, made) if settled(asked.kwargs.get("subset")) == "both" else made


def _slices(asked: Asked) -> Value:
    given = settled(asked.get(0, "tensors"))
    first = given[0] if isinstance(given, tuple) and given else given
    return _dataset(asked, _item(given), length_of(first))


def _item(value: Value, depth: int = 0) -> Value:
    """Return one row of arrays."""
    value = settled(value)
    if isinstance(value, Tensor):
        return Tensor(value.shape[1:] if value.shape else None, value.kind, library="keras")
    if isinstance(value, tuple) and depth < 4:
        return tuple(_item(each, depth + 1) for each in value)
    if isinstance(value, dict) and depth < 4:
        return {name: _item(each, depth + 1) for name, each in value.items()}
    return UNKNOWN


def _of(act: Callable[[Asked], Value]) -> Callable[[Asked], Value]:
    """Return a handler of a dataset's method; called on the class, the dataset is its first argument."""

    def bound(asked: Asked) -> Value:
        by_class = asked.owner is None and asked.args
        return act(replace(asked, owner=asked.args[0], args=asked.args[1:]) if by_class else asked)

    return bound


def _like(asked: Asked) -> Value:
    owner = settled(asked.owner)
    return owner.attrs.get("like", UNKNOWN) if isinstance(owner, Thing) else UNKNOWN


def _length(asked: Asked) -> int | None:
    return length_of(asked.owner)


def _batch(asked: Asked) -> Value:
    """Return the dataset in batches. Their size is left open, since the last batch may be smaller."""
    size, length, like = whole(asked.get(0, "batch_size")), _length(asked), batched(_like(asked), UNKNOWN)
    like = tuple(like) if isinstance(like, list) else like
    return _dataset(asked, like, -(-length // size) if length is not None and size else None)


def _mapped(asked: Asked) -> Value:
    like = _like(asked)
    args = like if isinstance(like, tuple) else (like,)
    return _dataset(asked, settled(asked.machine.call(asked.get(0, "map_func"), args, {}, asked.scope)), _length(asked))


def _kept(asked: Asked) -> Value:
    shorter = asked.name in ("take", "skip", "shard")
    return _dataset(asked, _like(asked), None if shorter else _length(asked))


def _fit(asked: Asked) -> Value:
    """Build a network without an input shape on the first data it is fitted to."""
    feed(asked, _first(settled(asked.get(0, "x"))))
    return asked.thing(of=asked.owner)


def _first(given: Value) -> Value:
    """Return the input of the network: the first part of a dataset's elements."""
    if isinstance(given, Thing) and given.path == DATASET:
        like = given.attrs.get("like", UNKNOWN)
        return settled(like[0]) if isinstance(like, tuple) and like else settled(like)
    return given


def feed(asked: Asked, given: Value) -> None:
    """Build the network on data like this, unless it was built already."""
    owner = asked.owner
    if not isinstance(given, Tensor) or not given.shape or len(given.shape) < 2:
        return
    data = Tensor((UNKNOWN, *given.shape[1:]), given.kind, library="keras")
    if isinstance(owner, Thing) and owner.path in NETWORKS and FED not in owner.attrs:
        owner.attrs[FED] = data
        if owner.path.endswith("Sequential") and any(isinstance(settled(each), Instance) for each in owner.children):
            asked.machine.call(owner, (data,), {}, asked.scope)
    elif isinstance(owner, Instance) and FED not in owner.attrs:
        owner.attrs[FED] = True
        asked.machine.call(owner, (data,), {}, asked.scope)


def _build(asked: Asked) -> Value:
    shape = dims(asked.get(0, "input_shape"))
    if shape is not None:
        feed(asked, Tensor(shape, library="keras"))
    return None


def _padded(asked: Asked) -> Value:
    """Return texts padded to one length."""
    texts, length = length_of(asked.get(0, "sequences")), whole(asked.kwargs.get("maxlen", asked.get(1, "maxlen")))
    sizes = (UNKNOWN if texts is None else texts, UNKNOWN if length is None else length)
    return Tensor(sizes, "int32", library="numpy")


def _categories(asked: Asked) -> Value:
    given, classes = settled(asked.get(0, "y", asked.kwargs.get("x"))), whole(asked.get(1, "num_classes"))
    if not isinstance(given, Tensor) or given.shape is None:
        return asked.thing()
    shape = given.shape[:-1] if len(given.shape) > 1 and given.shape[-1] == 1 else given.shape
    return Tensor((*shape, UNKNOWN if classes is None else classes), library="numpy")


HANDLERS: dict[str, Callable[[Asked], Value]] = {
    **dict.fromkeys(FOLDERS, _folder),
    f"{DATASET}.from_tensor_slices": _slices,
    f"{DATASET}.batch": _of(_batch),
    f"{DATASET}.map": _of(_mapped),
    **{f"{DATASET}.{name}": _of(_kept) for name in _SAME},
    **{f"{network}.{name}": _fit for network in NETWORKS for name in ("fit", "predict", "evaluate", "train_on_batch")},
    **{f"{network}.build": _build for network in NETWORKS if network.endswith("Sequential")},
    **{f"keras.{where}.pad_sequences": _padded for where in ("utils", "preprocessing.sequence")},
    "keras.utils.to_categorical": _categories,
}
