"""Flax: linen layers get their weights when they are first called, nnx layers when they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from crucible.analysis.library import arrays
from crucible.analysis.library.call import Asked
from crucible.analysis.library.keras.own_layers import own_weights
from crucible.analysis.values.tensors import weight
from crucible.analysis.values.values import UNKNOWN, Instance, Tensor, Thing, Value, settled, whole

if TYPE_CHECKING:
    from crucible.analysis.interpreter.machine import Machine

Shape = tuple[Value, ...]
PARAMETERS = "\0parameters"
MOST = 5_000
"""Values to search for weights."""
_LINEN = {
    "Dense": "features", "Conv": "features kernel_size strides padding",
    "ConvTranspose": "features kernel_size strides padding",
    "Embed": "num_embeddings features", "DenseGeneral": "features axis", "Sequential": "layers",
    "MultiHeadDotProductAttention": "num_heads", "MultiHeadAttention": "num_heads", "SelfAttention": "num_heads",
}  # fmt: skip
_NNX = {
    "Linear": "in_features out_features", "Conv": "in_features out_features kernel_size strides",
    "ConvTranspose": "in_features out_features kernel_size strides", "Embed": "num_embeddings features",
    "BatchNorm": "num_features", "LayerNorm": "num_features", "GroupNorm": "num_features", "RMSNorm": "num_features",
    "MultiHeadAttention": "num_heads in_features qkv_features out_features",
}  # fmt: skip
_NORMS = ("LayerNorm", "BatchNorm", "GroupNorm", "RMSNorm")
HAVE_WEIGHTS = (*_NORMS, "Dense", "Conv", "Embed", "Linear", "MultiHead", "SelfAttention", "LSTM", "GRU", "SimpleCell")


def linen(asked: Asked) -> Value:
    """Return the result of a call in flax.linen."""
    if asked.name in ("avg_pool", "max_pool"):
        return _pooled(asked)
    return arrays.call(asked) if asked.name[:1].islower() else asked.thing()


def nnx(asked: Asked) -> Value:
    """Return the result of a call in flax.nnx: a parameter, or a layer with its weights."""
    if asked.name[:1].islower():
        return linen(asked)
    thing = asked.thing()
    given = _read(thing)
    if asked.name == "Param":
        first = settled(asked.get(0, "value"))
        return weight(*first.shape) if isinstance(first, Tensor) and first.shape is not None else thing
    start = given.get("in_features", given.get("num_features", UNKNOWN))
    _keep(thing, _weights(asked.name, given, start))
    return thing


def _read(thing: Thing) -> dict[str, Value]:
    """Return the arguments of a layer by name."""
    table = _NNX if thing.path.startswith("flax.nnx.") else _LINEN
    names = table.get(thing.path.rpartition(".")[2], "").split()
    found = {
        name: settled(each) for name, each in {**dict(zip(names, thing.args, strict=False)), **thing.kwargs}.items()
    }
    if "out_features" in found and table is _NNX:
        found.setdefault("features", found["out_features"])
    return found


def called(machine: Machine, thing: Thing, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
    """Return the result of calling a layer, which gets its weights at the first call."""
    name, given = thing.path.rpartition(".")[2], _read(thing)
    if name == "Sequential":
        return _one_by_one(machine, given.get("layers"), args)
    source = settled(args[0]) if args else settled(next(iter(kwargs.values()), None))
    if not isinstance(source, Tensor):
        return UNKNOWN
    if source.shape and "weight0" not in thing.attrs and thing.path.startswith("flax.linen."):
        _keep(thing, _weights(name, given, source.shape[-1]))
    return arrays.made(_output(name, given, source.shape), source)


def _one_by_one(machine: Machine, layers: Value, args: tuple[Value, ...]) -> Value:
    value: Value = args[0] if args else UNKNOWN
    for layer in layers if isinstance(layers, list | tuple) else ():
        value = machine.call(settled(layer), (value,), {}, machine.nowhere())
    return value


def _keep(thing: Thing, shapes: list[Shape]) -> None:
    """Store the weights in the attributes of the layer."""
    for number, shape in enumerate(shapes):
        thing.attrs[f"weight{number}"] = weight(*shape)


def _weights(name: str, given: dict[str, Value], last: Value) -> list[Shape]:
    """Return the shapes of a layer's weights; `last` is the last dimension of its input."""
    features = given.get("features", UNKNOWN)
    bias: list[Shape] = [] if given.get("use_bias") is False else [(features,)]
    if name in ("Dense", "Linear"):
        return [(last, features), *bias]
    if name == "DenseGeneral":
        wide = arrays.dims(features) or (UNKNOWN,)
        return [(last, *wide)] if not bias else [(last, *wide), wide]
    if name in ("Conv", "ConvTranspose"):
        groups = whole(given.get("feature_group_count", 1)) or 1
        ins = whole(last)
        kernel = arrays.dims(given.get("kernel_size")) or (UNKNOWN,)
        return [(*kernel, UNKNOWN if ins is None else ins // groups, features), *bias]
    if name == "Embed":
        return [(given.get("num_embeddings", UNKNOWN), features)]
    if name in _NORMS:
        scaled = given.get("use_scale") is not False
        return [(last,)] * (scaled + (bool(bias) and name != "RMSNorm"))
    if name.startswith("MultiHead") or name == "SelfAttention":
        return _attention(given, last, bool(bias))
    return []


def _attention(given: dict[str, Value], last: Value, bias: bool) -> list[Shape]:
    wide = given.get("qkv_features") or last
    out = given.get("out_features") or last
    biases: list[Shape] = [(wide,), (wide,), (wide,), (out,)] if bias else []
    return [(last, wide), (last, wide), (last, wide), (wide, out), *biases]


def _output(name: str, given: dict[str, Value], shape: Shape | None) -> Shape | None:
    """Return the shape that a layer outputs."""
    if shape is None:
        return None
    if name in ("Dense", "Linear"):
        return (*shape[:-1], given.get("features", UNKNOWN))
    if name == "DenseGeneral":
        return (*shape[:-1], *(arrays.dims(given.get("features")) or (UNKNOWN,)))
    if name == "Embed":
        return (*shape, given.get("features", UNKNOWN))
    if name in ("Conv", "ConvTranspose"):
        kernel, strides = arrays.dims(given.get("kernel_size")) or (), arrays.dims(given.get("strides", 1)) or ()
        space = _space(shape[1:-1], kernel, strides, given.get("padding", "SAME"), name.endswith("Transpose"))
        return (shape[0], *space, given.get("features", UNKNOWN))
    return shape


def _space(space: Shape, kernel: Shape, strides: Shape, padding: Value, up: bool) -> Shape:
    steps = strides if len(strides) == len(space) else (strides or (1,)) * len(space)
    found: list[Value] = []
    for size, width, step in zip(space, (*kernel, *([1] * len(space))), steps, strict=False):
        one, other, each = whole(size), whole(width), whole(step)
        if one is None or other is None or not each or not isinstance(padding, str):
            found.append(UNKNOWN)
        elif up:
            found.append(one * each)
        else:
            found.append(-(-one // each) if padding.upper() == "SAME" else (one - other) // each + 1)
    return tuple(found)


def _pooled(asked: Asked) -> Value:
    source = settled(asked.args[0]) if asked.args else None
    if not isinstance(source, Tensor) or source.shape is None:
        return asked.thing()
    window = arrays.dims(asked.get(1, "window_shape")) or ()
    strides = arrays.dims(asked.get(2, "strides")) or (1,)
    space = _space(source.shape[1:-1], window, strides, settled(asked.get(3, "padding", "VALID")), False)
    return arrays.made((source.shape[0], *space, source.shape[-1]), source)


def _parameter(asked: Asked) -> Value:
    """Return the weight of `self.param(name, initializer, shape)`, and store it in its module."""
    shape = arrays.dims(asked.get(2, "shape"))
    made = weight(*shape) if shape is not None else weight(UNKNOWN)
    if isinstance(asked.owner, Instance):
        asked.owner.attrs[f"\0weight{len(asked.owner.attrs)}"] = made
    return made


def _init(asked: Asked) -> Value:
    """Follow the model of `model.init(key, example)` once; what it makes on the way are its weights."""
    facts, owner = asked.machine.facts, asked.owner
    calls, objects = len(facts.calls), len(facts.made)
    asked.machine.call(owner, asked.args[1:], {}, asked.machine.nowhere())
    inside = [each.result for each in facts.calls[calls:]] + list(facts.made[objects:]) + [owner]
    if isinstance(owner, Instance):
        owner.attrs[PARAMETERS] = [thing for each in inside for thing in holders(each)]
    return asked.thing()


def holders(value: Value) -> Iterator[Thing | Instance]:
    """Yield the layers and objects inside a value, and itself, that may hold weights, each once."""
    waiting, seen = [value], set[int]()
    while waiting and len(seen) < MOST:
        each = settled(waiting.pop())
        if id(each) in seen:
            continue
        seen.add(id(each))
        waiting.extend(_inside(each))
        if isinstance(each, Instance) or (isinstance(each, Thing) and each.path.startswith("flax.")):
            yield each


def _inside(value: Value) -> list[Value]:
    """Return the values directly inside a value."""
    if isinstance(value, Thing):
        return list(value.args) if value.path.startswith("flax.") else []
    if isinstance(value, Instance):
        return [each for name, each in value.attrs.items() if name != PARAMETERS]
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []


def held(holder: Thing | Instance) -> list[Tensor]:
    """Return the weights that a layer or object holds itself."""
    if isinstance(holder, Instance):
        return own_weights(holder)
    return [each for name, each in holder.attrs.items() if name.startswith("weight") and isinstance(each, Tensor)]


HANDLERS: dict[str, Callable[[Asked], Value]] = {
    "flax.linen.Module.param": _parameter,
    **{f"flax.linen.Module.{name}": _init for name in ("init", "init_with_output", "lazy_init")},
}
