"""Output shapes of Keras layers."""

from __future__ import annotations

import math
from collections.abc import Callable

from crucible.analysis.library.arrays import dims, fitted, joined
from crucible.analysis.library.keras.arguments import Shape, kind_of, read, sizes, times
from crucible.analysis.values.tensors import broadcast
from crucible.analysis.values.values import UNKNOWN, Tensor, Thing, Value, settled, whole

Given = dict[str, Value]


def output(thing: Thing, shape: Shape | None, inputs: tuple[Tensor, ...]) -> Shape | None:
    """Return the output shape for the shape of the first input, or None if it is not known."""
    if shape is None:
        return None
    name, given = kind_of(thing), read(thing)
    if name in ("Add", "Multiply", "Average", "Subtract", "Maximum", "Minimum"):
        return _together(inputs)
    if name in ("Concatenate", "concatenate"):
        axis = whole(given.get("axis", -1))
        return joined([each.shape for each in inputs], -1 if axis is None else axis)
    if name == "Bidirectional":
        return _both_ways(given.get("layer"), shape, inputs)
    if name == "TimeDistributed":
        return _of_each(given.get("layer"), shape, inputs)
    if name in _BY_NAME:
        return _BY_NAME[name](shape, given)
    return _over_space(name, shape, given)


def _over_space(name: str, shape: Shape, given: Given) -> Shape:
    """Return the output shape of layers for one to three dimensions; other layers keep the shape."""
    if name.startswith(("Conv", "Separable", "Depthwise")):
        channels = shape[-1] if name.startswith("Depthwise") else given.get("filters", UNKNOWN)
        space = _space(shape[1:-1], given, "kernel_size", "strides", name.endswith("Transpose"), 1)
        return (shape[0], *space, channels)
    if "Pool" in name:
        if name.startswith("Global"):
            return (shape[0], shape[-1])
        return (shape[0], *_space(shape[1:-1], given, "pool_size", "strides", False, 2), shape[-1])
    if name.startswith("UpSampling"):
        factors = sizes(given.get("size", 2), len(shape) - 2)
        space = tuple(times(each, factor) for each, factor in zip(shape[1:-1], factors, strict=False))
        return (shape[0], *space, shape[-1])
    if name.startswith(("ZeroPadding", "Cropping")):
        return _padded(shape, given, 1 if name.startswith("Zero") else -1)
    return shape


def _dense(shape: Shape, given: Given) -> Shape:
    return (*shape[:-1], given.get("units", UNKNOWN))


def _embedding(shape: Shape, given: Given) -> Shape:
    return (*shape, given.get("output_dim", UNKNOWN))


def _flat(shape: Shape, given: Given) -> Shape:
    counts = [whole(each) for each in shape[1:]]
    return (shape[0], UNKNOWN if None in counts else math.prod(each or 0 for each in counts))


def _reshaped(shape: Shape, given: Given) -> Shape | None:
    target = given.get("target_shape")
    return (shape[0], *(fitted(shape[1:], dims(target)) or ())) if isinstance(target, list | tuple) else None


def _recurrent(shape: Shape, given: Given) -> Shape:
    units = given.get("units", UNKNOWN)
    return (*shape[:2], units) if given.get("return_sequences") is True else (shape[0], units)


def _resized(shape: Shape, given: Given) -> Shape:
    return (*shape[:-3], given.get("height", UNKNOWN), given.get("width", UNKNOWN), shape[-1])


def _permuted(shape: Shape, given: Given) -> Shape:
    order = dims(given.get("dims")) or ()
    return (shape[0], *(shape[at] if isinstance(at, int) and 0 <= at < len(shape) else UNKNOWN for at in order))


def _repeated(shape: Shape, given: Given) -> Shape:
    return (shape[0], given.get("n", UNKNOWN), *shape[1:])


def _words(shape: Shape, given: Given) -> Shape:
    return (shape[0], given.get("output_sequence_length", UNKNOWN))


def _categories(shape: Shape, given: Given) -> Shape:
    return (shape[0], given.get("num_tokens", UNKNOWN))


_BY_NAME: dict[str, Callable[[Shape, Given], Shape | None]] = {
    "Dense": _dense, "Embedding": _embedding, "Flatten": _flat, "Reshape": _reshaped,
    "LSTM": _recurrent, "GRU": _recurrent, "SimpleRNN": _recurrent,
    "Resizing": _resized, "RandomCrop": _resized, "CenterCrop": _resized,
    "Permute": _permuted, "RepeatVector": _repeated, "TextVectorization": _words, "CategoryEncoding": _categories,
}  # fmt: skip


def _both_ways(layer: Value, shape: Shape, inputs: tuple[Tensor, ...]) -> Shape | None:
    inner = settled(layer)
    out = output(inner, shape, inputs) if isinstance(inner, Thing) else None
    return (*out[:-1], times(2, out[-1])) if out else None


def _of_each(layer: Value, shape: Shape, inputs: tuple[Tensor, ...]) -> Shape | None:
    """Return the output shape of a layer that is applied to each step of the second axis."""
    inner = settled(layer)
    if not isinstance(inner, Thing) or len(shape) < 3:
        return None
    out = output(inner, (shape[0], *shape[2:]), inputs)
    return (out[0], shape[1], *out[1:]) if out else None


def _together(inputs: tuple[Tensor, ...]) -> Shape | None:
    shape = inputs[0].shape
    for each in inputs[1:]:
        shape = broadcast(shape, each.shape)
    return shape


def _space(space: Shape, given: Given, kernel: str, stride: str, up: bool, default: int) -> Shape:
    """Return the spatial sizes after a convolution or pooling. `up`: a transposed one."""
    kernels = sizes(given.get(kernel, default), len(space))
    strides_given = given.get(stride)
    strides = (
        sizes(strides_given, len(space))
        if strides_given is not None
        else kernels
        if kernel == "pool_size"
        else (1,) * len(space)
    )
    same = given.get("padding", "valid") == "same"
    outs: list[Value] = []
    for size, k, s in zip(space, kernels, strides, strict=False):
        if not all(isinstance(each, int) for each in (size, k, s)) or not s:
            outs.append(UNKNOWN)
        elif up:
            outs.append(size * s if same else size * s + max(k - s, 0))
        else:
            outs.append(-(-size // s) if same else (size - k) // s + 1)
    return tuple(outs)


def _padded(shape: Shape, given: Given, sign: int) -> Shape:
    """Return the shape after padding or cropping (sign -1): `padding=1`, `(1, 2)` and `((1, 0), (2, 2))` alike."""
    amounts = sizes(given.get("padding", given.get("cropping", 1)), len(shape) - 2)
    space: list[Value] = []
    for size, amount in zip(shape[1:-1], amounts, strict=False):
        pair = amount if isinstance(amount, list | tuple) else (amount, amount)
        ends = [whole(each) for each in pair]
        whole_size = whole(size)
        known = whole_size is not None and None not in ends
        space.append((whole_size or 0) + sign * sum(each or 0 for each in ends) if known else UNKNOWN)
    return (shape[0], *space, shape[-1])
