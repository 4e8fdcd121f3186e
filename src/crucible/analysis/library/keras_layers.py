"""Keras: layers get their weights when they are first called; a network is what led from inputs to outputs."""

from __future__ import annotations

import math
from collections.abc import Callable

from crucible.analysis.iteration import items_of
from crucible.analysis.library.arrays import dims, fitted, joined, made
from crucible.analysis.library.asked import Asked
from crucible.analysis.machine import Machine
from crucible.analysis.tensors import broadcast, weight
from crucible.analysis.values import UNKNOWN, Instance, Tensor, Thing, Value, settled, whole

Shape = tuple[Value, ...]
_SIGNATURES = {
    "Dense": "units activation use_bias", "Embedding": "input_dim output_dim",
    "Conv1D": "filters kernel_size strides padding",
    "Conv2D": "filters kernel_size strides padding", "Conv3D": "filters kernel_size strides padding",
    "Convolution2D": "filters kernel_size strides padding",
    "Conv2DTranspose": "filters kernel_size strides padding", "Conv1DTranspose": "filters kernel_size strides padding",
    "SeparableConv2D": "filters kernel_size strides padding", "DepthwiseConv2D": "kernel_size strides padding",
    "LSTM": "units", "GRU": "units", "SimpleRNN": "units", "Bidirectional": "layer", "TimeDistributed": "layer",
    "MaxPooling2D": "pool_size strides padding", "AveragePooling2D": "pool_size strides padding",
    "MaxPooling1D": "pool_size strides padding",
    "MaxPool2D": "pool_size strides padding", "AveragePooling1D": "pool_size strides padding",
    "MaxPooling3D": "pool_size strides padding",
    "Reshape": "target_shape", "UpSampling2D": "size", "RepeatVector": "n", "Resizing": "height width",
    "RandomCrop": "height width", "CenterCrop": "height width", "Permute": "dims", "Lambda": "function",
    "CategoryEncoding": "num_tokens", "SeparableConv1D": "filters kernel_size strides padding", "PReLU": "",
    "UpSampling1D": "size", "UpSampling3D": "size", "ZeroPadding1D": "padding",
    "MultiHeadAttention": "num_heads key_dim value_dim",
    "BatchNormalization": "axis", "LayerNormalization": "axis", "ZeroPadding2D": "padding", "Cropping2D": "cropping",
}  # fmt: skip


NETWORKS = ("keras.Sequential", "keras.models.Sequential", "keras.Model", "keras.models.Model")
"""Layers put together, by inputs and outputs or in a row."""


def read(thing: Thing) -> dict[str, Value]:
    names = _SIGNATURES.get(thing.path.rpartition(".")[2], "").split()
    return {key: settled(each) for key, each in {**dict(zip(names, thing.args, strict=False)), **thing.kwargs}.items()}


def layer(asked: Asked) -> Value:
    if asked.path.count(".") != 2:
        return asked.thing()
    if asked.name == "Input":
        return _input(asked)
    return asked.thing()


def _input(asked: Asked) -> Value:
    shape = settled(asked.get(0, "shape", asked.kwargs.get("batch_shape")))
    if isinstance(shape, int):
        shape = (shape,)
    sizes = tuple(UNKNOWN if each is None else each for each in shape) if isinstance(shape, list | tuple) else None
    found = Tensor((UNKNOWN, *sizes) if sizes is not None else None, library="keras")
    found.origin = (asked.thing(), ())
    return found


def called(machine: Machine, thing: Thing, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
    """A layer or a network applied to tensors."""
    first = settled(args[0]) if args else settled(kwargs.get("inputs"))
    parts = [settled(each) for each in items_of(first) or []] if isinstance(first, list | tuple) else [first]
    tensors = tuple(each for each in parts if isinstance(each, Tensor))
    if thing.path.startswith("keras.initializers."):
        shape = dims(args[0] if args else kwargs.get("shape"))
        return Tensor(shape, library="keras") if shape is not None else UNKNOWN
    if not tensors:
        return UNKNOWN
    if thing.path.endswith(".Lambda"):
        return _computed(machine, thing, args, tensors)
    if thing.path.endswith(".Sequential") and any(isinstance(settled(each), Instance) for each in thing.children):
        return _one_by_one(machine, thing, tensors[0])
    return applied(thing, tensors)


def _computed(machine: Machine, thing: Thing, args: tuple[Value, ...], inputs: tuple[Tensor, ...]) -> Value:
    """A function as a layer."""
    found = settled(machine.call(thing.argument(0, "function"), args[:1], {}, machine.nowhere()))
    return found if isinstance(found, Tensor) else made(None, *inputs)


def _one_by_one(machine: Machine, thing: Thing, value: Value) -> Value:
    """Layers in a row, some of them the program's own."""
    for each in thing.children:
        inner = settled(each)
        if isinstance(inner, Instance | Thing):
            value = machine.call(inner, (value,), {}, machine.nowhere())
    return value


def applied(thing: Thing, inputs: tuple[Tensor, ...]) -> Tensor:
    name = thing.path.rpartition(".")[2]
    if name in ("Sequential",):
        result = inputs[0]
        for each in thing.children:
            inner = settled(each)
            result = applied(inner, (result,)) if isinstance(inner, Thing) else result
        return result
    if name in ("Model", "Functional") and isinstance(thing.attrs.get("outputs"), Tensor):
        found = Tensor(thing.attrs["outputs"].shape, library="keras")
        found.origin = (thing, inputs)
        return found
    shape = inputs[0].shape
    if shape is not None:
        _build(thing, name, shape, inputs)
    found = Tensor(_output(thing, name, shape, inputs), library="keras")
    found.origin = (thing, inputs)
    return found


def _build(thing: Thing, name: str, shape: Shape, inputs: tuple[Tensor, ...]) -> None:
    if "built" in thing.attrs:
        return
    thing.attrs["built"] = True
    given = read(thing)
    for number, sizes in enumerate(_weights(thing, name, given, shape)):
        thing.attrs[f"weight{number}"] = weight(*sizes)
        thing.attrs[f"weight{number}"].grad = given.get("trainable") is not False


def _weights(thing: Thing, name: str, given: dict[str, Value], shape: Shape) -> list[Shape]:
    last = shape[-1] if shape else UNKNOWN
    units = given.get("units", given.get("filters", UNKNOWN))
    bias: list[Shape] = [] if given.get("use_bias") is False else [(units,)]
    kernel = _sizes(given.get("kernel_size", 1), _rank(name))
    if name == "Dense":
        return [(last, units), *bias]
    if name == "Embedding":
        return [(given.get("input_dim", UNKNOWN), given.get("output_dim", UNKNOWN))]
    if name.startswith(("Separable", "Depthwise")):
        deep = (*kernel, last)
        if name.startswith("Separable"):
            return [deep, (last, units), *bias]
        return [deep] if given.get("use_bias") is False else [deep, (last,)]
    if name.startswith("Conv"):
        return [(*kernel, last, units), *bias]
    if name in ("BatchNormalization", "LayerNormalization", "GroupNormalization"):
        return [(last,), (last,)]
    if name in ("LSTM", "GRU", "SimpleRNN"):
        return _recurrent(name, units, last)
    if name == "Bidirectional":
        return 2 * _inner_weights(given.get("layer"), shape)
    if name == "TimeDistributed":
        return _inner_weights(given.get("layer"), (shape[0], *shape[2:]))
    if name == "MultiHeadAttention":
        return _attention(given, last)
    if name == "PReLU":
        return [tuple(shape[1:])]
    return []


def _attention(given: dict[str, Value], last: Value) -> list[Shape]:
    heads, key = given.get("num_heads", UNKNOWN), given.get("key_dim", UNKNOWN)
    wide, values = _times(heads, key), _times(heads, given.get("value_dim") or key)
    out = given.get("output_shape") or last
    rows: list[Shape] = [(last, wide), (last, wide), (last, values), (values, out)]
    biases: list[Shape] = [(wide,), (wide,), (values,), (out,)]
    return rows if given.get("use_bias") is False else [*rows, *biases]


def _inner_weights(layer_: Value, shape: Shape) -> list[Shape]:
    inner = settled(layer_)
    if not isinstance(inner, Thing):
        return []
    inner.attrs["wrapped"] = True
    return _weights(inner, inner.path.rpartition(".")[2], read(inner), shape)


def _recurrent(name: str, units: Value, last: Value) -> list[Shape]:
    gates = {"LSTM": 4, "GRU": 3, "SimpleRNN": 1}[name]
    wide = _times(gates, units)
    return [(last, wide), (units, wide), (wide,) if name != "GRU" else (2, wide)]


def _times(one: Value, other: Value) -> Value:
    return one * other if isinstance(one, int) and isinstance(other, int) else UNKNOWN


def _rank(name: str) -> int:
    return next((int(letter) for letter in name if letter.isdigit()), 1)


def _sizes(value: Value, count: int) -> tuple[Value, ...]:
    value = settled(value)
    return tuple(value) if isinstance(value, list | tuple) else (value,) * count


def output_shape(thing: Thing, inputs: tuple[Tensor, ...]) -> Shape | None:
    """What the layer makes of tensors of these shapes."""
    return _output(thing, thing.path.rpartition(".")[2], inputs[0].shape, inputs)


def _output(thing: Thing, name: str, shape: Shape | None, inputs: tuple[Tensor, ...]) -> Shape | None:
    given = read(thing)
    if shape is None:
        return None
    if name == "Dense":
        return (*shape[:-1], given.get("units", UNKNOWN))
    if name == "Embedding":
        return (*shape, given.get("output_dim", UNKNOWN))
    if name.startswith(("Conv", "Separable", "Depthwise")):
        channels = shape[-1] if name.startswith("Depthwise") else given.get("filters", UNKNOWN)
        space = _space(shape[1:-1], given, "kernel_size", "strides", name.endswith("Transpose"), 1)
        return (shape[0], *space, channels)
    if "Pool" in name:
        if name.startswith("Global"):
            return (shape[0], shape[-1])
        return (shape[0], *_space(shape[1:-1], given, "pool_size", "strides", False, 2), shape[-1])
    if name == "Flatten":
        counts = [whole(each) for each in shape[1:]]
        return (shape[0], UNKNOWN if None in counts else math.prod(each or 0 for each in counts))
    if name == "Reshape":
        target = given.get("target_shape")
        return (shape[0], *(fitted(shape[1:], dims(target)) or ())) if isinstance(target, list | tuple) else None
    if name in ("LSTM", "GRU", "SimpleRNN"):
        units = given.get("units", UNKNOWN)
        return (*shape[:2], units) if given.get("return_sequences") is True else (shape[0], units)
    if name == "Bidirectional":
        inner = settled(given.get("layer"))
        out = _output(inner, inner.path.rpartition(".")[2], shape, inputs) if isinstance(inner, Thing) else None
        return (*out[:-1], _times(2, out[-1])) if out else None
    if name.startswith("UpSampling"):
        factors = _sizes(given.get("size", 2), len(shape) - 2)
        return (
            shape[0],
            *(_times(each, factor) for each, factor in zip(shape[1:-1], factors, strict=False)),
            shape[-1],
        )
    if name in ("Concatenate", "concatenate"):
        axis = whole(given.get("axis", -1))
        return joined([each.shape for each in inputs], -1 if axis is None else axis)
    if name in ("Resizing", "RandomCrop", "CenterCrop"):
        return (*shape[:-3], given.get("height", UNKNOWN), given.get("width", UNKNOWN), shape[-1])
    if name.startswith(("ZeroPadding", "Cropping")):
        return _padded(shape, given, 1 if name.startswith("Zero") else -1)
    if name == "Permute":
        order = dims(given.get("dims")) or ()
        return (shape[0], *(shape[at] if isinstance(at, int) and 0 <= at < len(shape) else UNKNOWN for at in order))
    if name == "TextVectorization":
        return (shape[0], given.get("output_sequence_length", UNKNOWN))
    if name == "CategoryEncoding":
        return (shape[0], given.get("num_tokens", UNKNOWN))
    if name == "TimeDistributed":
        return _of_each(given.get("layer"), shape, inputs)
    if name in ("Add", "Multiply", "Average", "Subtract", "Maximum", "Minimum"):
        return _together(inputs)
    if name == "RepeatVector":
        return (shape[0], given.get("n", UNKNOWN), *shape[1:])
    return shape


def _padded(shape: Shape, given: dict[str, Value], sign: int) -> Shape:
    """`padding=1`, `padding=(1, 2)` and `padding=((1, 0), (2, 2))` alike."""
    amounts = _sizes(given.get("padding", given.get("cropping", 1)), len(shape) - 2)
    space: list[Value] = []
    for size, amount in zip(shape[1:-1], amounts, strict=False):
        pair = amount if isinstance(amount, list | tuple) else (amount, amount)
        ends = [whole(each) for each in pair]
        whole_size = whole(size)
        known = whole_size is not None and None not in ends
        space.append((whole_size or 0) + sign * sum(each or 0 for each in ends) if known else UNKNOWN)
    return (shape[0], *space, shape[-1])


def _of_each(layer_: Value, shape: Shape, inputs: tuple[Tensor, ...]) -> Shape | None:
    inner = settled(layer_)
    if not isinstance(inner, Thing) or len(shape) < 3:
        return None
    out = _output(inner, inner.path.rpartition(".")[2], (shape[0], *shape[2:]), inputs)
    return (out[0], shape[1], *out[1:]) if out else None


def _together(inputs: tuple[Tensor, ...]) -> Shape | None:
    shape = inputs[0].shape
    for each in inputs[1:]:
        shape = broadcast(shape, each.shape)
    return shape


def _space(space: Shape, given: dict[str, Value], kernel: str, stride: str, up: bool, default: int) -> Shape:
    kernels = _sizes(given.get(kernel, default), len(space))
    strides_given = given.get(stride)
    strides = (
        _sizes(strides_given, len(space))
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


def _sequential(asked: Asked) -> Value:
    thing = asked.thing()
    thing.children = list(items_of(asked.get(0, "layers", [])) or [])
    return thing


def _add(asked: Asked) -> Value:
    if isinstance(asked.owner, Thing) and asked.args:
        asked.owner.children.append(asked.args[0])
    return None


def _model(asked: Asked) -> Value:
    ins, outs = settled(asked.get(0, "inputs")), settled(asked.get(1, "outputs"))
    return asked.thing(inputs=ins, outputs=outs)


def network(thing: Thing) -> list[Tensor]:
    """All tensors on the way to the outputs, the weights of their layers built."""
    if thing.path.endswith("Sequential"):
        return _chain(thing)
    outputs = thing.attrs.get("outputs")
    waiting = [
        each
        for each in (items_of(outputs) or [outputs] if isinstance(outputs, list | tuple) else [outputs])
        if isinstance(each, Tensor)
    ]
    seen: dict[int, Tensor] = {}
    while waiting and len(seen) < 5_000:
        each = waiting.pop()
        if id(each) not in seen:
            seen[id(each)] = each
            if each.origin is not None:
                waiting.extend(each.origin[1])
    return list(seen.values())


def _chain(thing: Thing) -> list[Tensor]:
    found: list[Tensor] = []
    current: Tensor | None = None
    for each in thing.children:
        inner = settled(each)
        if isinstance(inner, Tensor):
            current = inner
        elif isinstance(inner, Thing):
            start = inner.kwargs.get("input_shape", inner.kwargs.get("shape"))
            if current is None and isinstance(settled(start), list | tuple):
                current = Tensor((UNKNOWN, *settled(start)), library="keras")
            if current is None and isinstance(settled(inner.kwargs.get("input_dim")), int):
                length = settled(inner.kwargs.get("input_length", UNKNOWN))
                is_words = inner.path.endswith("Embedding")
                current = Tensor((UNKNOWN, length if is_words else settled(inner.kwargs["input_dim"])), library="keras")
            if current is None:
                current = Tensor(None, library="keras")
            current = applied(inner, (current,))
            found.append(current)
    return found


HANDLERS: dict[str, Callable[[Asked], Value]] = {
    "keras.Input": _input, "keras.layers.Input": _input, "keras.Sequential": _sequential,
    "keras.models.Sequential": _sequential,
    "keras.Sequential.add": _add, "keras.models.Sequential.add": _add, "keras.Model": _model,
    "keras.models.Model": _model,
}  # fmt: skip
