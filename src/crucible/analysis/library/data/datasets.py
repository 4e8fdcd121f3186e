"""Datasets and loaders: the number of samples, the shape of one, and batches of them."""

from __future__ import annotations

from collections.abc import Callable

from crucible.analysis.interpreter.functions import follow, method
from crucible.analysis.interpreter.iteration import items_of, length_of
from crucible.analysis.knowledge.datasets import dataset
from crucible.analysis.library.call import Asked
from crucible.analysis.values.tensors import tensor
from crucible.analysis.values.values import UNKNOWN, Instance, Tensor, Thing, Value, settled, whole

_SIZES = frozenset({"Resize", "RandomResizedCrop", "CenterCrop", "RandomCrop"})


def torch_dataset(asked: Asked) -> Value:
    """Return a dataset of torchvision, with images of the size that its transforms produce."""
    if asked.path.count(".") != 2:
        return asked.thing()
    known = dataset(asked.name)
    thing = asked.thing(name=asked.name)
    size = picture_size(asked.kwargs.get("transform", next((each for each in asked.args if _transforms(each)), None)))
    if known is None:
        if asked.name in ("ImageFolder", "DatasetFolder", "FakeData"):
            side = size if size is not None else UNKNOWN
            thing.attrs["like"] = (tensor((3, side, side)), tensor((), "int64"))
        if asked.name == "FakeData":
            thing.attrs["length"] = asked.get(0, "size", 1000)
        return thing
    train = asked.kwargs.get("train", True) is not False and asked.kwargs.get("split", "train") in ("train", UNKNOWN)
    if known.samples:
        thing.attrs["length"] = known.samples if train else max(1, known.samples // 6)
    if known.shape:
        shape = (*known.shape[:1], size, size) if size is not None and len(known.shape) == 3 else known.shape
        thing.attrs["like"] = (tensor(shape), tensor((), "int64"))
    return thing


def _transforms(value: Value) -> bool:
    return isinstance(settled(value), Thing) and ".transforms" in settled(value).path


def picture_size(value: Value, depth: int = 0) -> int | None:
    """Return the last size that the transforms bring images to, or None."""
    value = settled(value)
    if not isinstance(value, Thing) or depth > 5:
        return None
    if value.path.rpartition(".")[2] in _SIZES:
        size = settled(value.argument(0, "size"))
        return whole(size[0]) if isinstance(size, list | tuple) and size else whole(size)
    found: int | None = None
    for each in (*value.args, *value.kwargs.values()):
        for inner in items_of(each) or [each] if isinstance(each, list | tuple) else [each]:
            size = picture_size(inner, depth + 1)
            found = size if size is not None else found
    return found


def _tensors(asked: Asked) -> Value:
    parts = [settled(each) for each in asked.args]
    shapes = tuple(
        Tensor(each.shape[1:], each.kind) if isinstance(each, Tensor) and each.shape else UNKNOWN for each in parts
    )
    length = length_of(parts[0]) if parts else None
    return asked.thing(like=shapes, **({"length": length} if length is not None else {}))


def _subset(asked: Asked) -> Value:
    source = settled(asked.get(0, "dataset"))
    thing = asked.thing(**(source.attrs if isinstance(source, Thing) else {}))
    length = length_of(asked.get(1, "indices"))
    if length is not None:
        thing.attrs["length"] = length
    return thing


def _split(asked: Asked) -> Value:
    source, lengths = settled(asked.get(0, "dataset")), items_of(asked.get(1, "lengths"))
    if lengths is None:
        return UNKNOWN
    total = samples_of(asked, source)
    parts = []
    for each in lengths:
        count = settled(each)
        if isinstance(count, float) and 0 < count <= 1 and total is not None:
            count = int(count * total)
        attrs = dict(source.attrs) if isinstance(source, Thing) else {"like": _sample(asked, source)}
        parts.append(
            Thing(
                "torch.utils.data.Subset",
                where=asked.machine.line,
                attrs={**attrs, "length": whole(count), "of": source},
            )
        )
    return parts


def samples_of(asked: Asked, source: Value) -> int | None:
    """Return the number of samples of a dataset, or None."""
    source = settled(source)
    if isinstance(source, Instance):
        found = method(source, "__len__")
        if found is None:
            return None
        return whole(follow(asked.machine, found.function, (source,), {}))
    return length_of(source)


def _sample(asked: Asked, source: Value) -> Value:
    """Return a sample of a dataset, or UNKNOWN."""
    source = settled(source)
    if isinstance(source, Thing):
        return source.attrs.get("like", UNKNOWN)
    found = method(source, "__getitem__")
    if found is not None:
        return follow(asked.machine, found.function, (source, UNKNOWN), {})
    items = items_of(source)
    return items[0] if items else UNKNOWN


def batched(value: Value, size: Value, depth: int = 0) -> Value:
    """Return samples collated to a batch, as torch's loader does."""
    value = settled(value)
    if isinstance(value, Tensor):
        return tensor((size, *value.shape) if value.shape is not None else None, value.kind)
    if isinstance(value, bool | int):
        return tensor((size,), "int64")
    if isinstance(value, float):
        return tensor((size,))
    if isinstance(value, tuple | list) and depth < 4 and len(value) < 50:
        return [batched(each, size, depth + 1) for each in value]
    if isinstance(value, dict) and depth < 4:
        return {key: batched(each, size, depth + 1) for key, each in value.items()}
    return UNKNOWN


def _loader(asked: Asked) -> Value:
    source = settled(asked.get(0, "dataset"))
    sampler = settled(asked.kwargs.get("batch_sampler"))
    by_sampler = sampler.argument(1, "batch_size") if isinstance(sampler, Thing) else None
    size = whole(by_sampler if sampler is not None else asked.get(1, "batch_size", 1))
    count = samples_of(asked, source)
    like = batched(_sample(asked, source), UNKNOWN if size is None else size)
    attrs: dict[str, Value] = {"like": like, "dataset": source, "batch_size": UNKNOWN if size is None else size}
    if count is not None and size:
        attrs["length"] = -(-count // size)
    made = asked.thing(**attrs)
    made.attrs["data"] = made
    return made


def keras_dataset(asked: Asked) -> Value:
    """Return the arrays of `keras.datasets.mnist.load_data()` and its like: train and test."""
    if asked.name != "load_data":
        return asked.thing()
    name = asked.path.split(".")[-2]
    known = dataset(name)
    if known is None or known.samples is None:
        return asked.thing()
    shape = known.shape
    if len(shape) == 3:
        shape = shape[1:] if shape[0] == 1 else (*shape[1:], shape[0])
    data = asked.thing(name=name, length=known.samples)
    asked.machine.facts.made.append(data)

    def part(count: int) -> Value:
        items = Tensor((count, *shape), "float32", library="numpy")
        return (items, Tensor((count,), "int64", library="numpy"))

    return (part(known.samples), part(max(1, known.samples // 6)))


def _numpy_expand(asked: Asked) -> Value:
    source, axis = settled(asked.get(0, "a")), whole(asked.get(1, "axis"))
    if not isinstance(source, Tensor) or source.shape is None or axis is None:
        return source if isinstance(source, Tensor) else UNKNOWN
    place = axis % (len(source.shape) + 1)
    return Tensor((*source.shape[:place], 1, *source.shape[place:]), source.kind, library="numpy")


def _hub(asked: Asked) -> Value:
    """Return a dataset of `datasets.load_dataset(name)` or `tfds.load(name)`."""
    name = settled(asked.get(0, "path", asked.kwargs.get("name")))
    second = settled(asked.get(1, "name"))
    known = (
        dataset(second)
        if isinstance(second, str) and dataset(second)
        else dataset(name)
        if isinstance(name, str)
        else None
    )
    thing = asked.thing(name=name if isinstance(name, str) else None)
    if known is not None and known.samples:
        thing.attrs["samples"] = known.samples
    if known is not None and len(known.shape) == 3 and _pairs(asked):
        picture = Tensor((*known.shape[1:], known.shape[0]), "uint8", library="keras")
        like = (picture, Tensor((), "int64", library="keras"))
        return Thing(TF_DATASET, asked.args, asked.kwargs, asked.machine.line, {**thing.attrs, "like": like})
    return thing


TF_DATASET = "tensorflow.data.Dataset"


def _pairs(asked: Asked) -> bool:
    """Return whether `tfds.load(name, split="train", as_supervised=True)` gives one dataset of images with labels."""
    told = {name: settled(asked.kwargs.get(name)) for name in ("split", "as_supervised", "with_info", "batch_size")}
    one = isinstance(told["split"], str) and told["as_supervised"] is True
    return one and asked.path == "tensorflow_datasets.load" and not told["with_info"] and told["batch_size"] is None


HANDLERS: dict[str, Callable[[Asked], Value]] = {
    "torch.utils.data.DataLoader": _loader, "torch.utils.data.TensorDataset": _tensors,
    "torch.utils.data.Subset": _subset,
    "torch.utils.data.random_split": _split, "torch_geometric.loader.DataLoader": _loader,
    "numpy.expand_dims": _numpy_expand, "datasets.load_dataset": _hub, "tensorflow_datasets.load": _hub,
}  # fmt: skip
