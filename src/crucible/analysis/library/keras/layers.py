"""Keras layers get their weights when they are first called; a network is the path from inputs to outputs."""

from __future__ import annotations

from collections.abc import Callable

from crucible.analysis.interpreter.iteration import items_of
from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.library.arrays import dims, made
from crucible.analysis.library.call import Asked
from crucible.analysis.library.keras.arguments import Shape, kind_of, read
from crucible.analysis.library.keras.shapes import output
from crucible.analysis.library.keras.weights import weights
from crucible.analysis.values.tensors import weight
from crucible.analysis.values.values import UNKNOWN, Instance, Tensor, Thing, Value, settled

NETWORKS = ("keras.Sequential", "keras.models.Sequential", "keras.Model", "keras.models.Model")
"""Classes of networks: layers in sequence, or between inputs and outputs."""

FED = "fed"
"""The attribute of a network that holds the first data it was built on."""


def layer(asked: Asked) -> Value:
    """Return a layer, or the tensor that `Input` makes."""
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
    """Return the result of applying a layer or network to tensors."""
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
    """Return the result of a `Lambda` layer."""
    found = settled(machine.call(thing.argument(0, "function"), args[:1], {}, machine.nowhere()))
    return found if isinstance(found, Tensor) else made(None, *inputs)


def _one_by_one(machine: Machine, thing: Thing, value: Value) -> Value:
    """Return the result of layers in sequence, some of them the program's own."""
    for each in thing.children:
        inner = settled(each)
        if isinstance(inner, Instance | Thing):
            value = machine.call(inner, (value,), {}, machine.nowhere())
    return value


def applied(thing: Thing, inputs: tuple[Tensor, ...]) -> Tensor:
    """Return the output of a layer or network, with its weights built."""
    name = kind_of(thing)
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
        _build(thing, name, shape)
    found = Tensor(output(thing, shape, inputs), library="keras")
    found.origin = (thing, inputs)
    return found


def _build(thing: Thing, name: str, shape: Shape) -> None:
    """Make the layer's weights, once."""
    if "built" in thing.attrs:
        return
    thing.attrs["built"] = True
    given = read(thing)
    for number, sizes in enumerate(weights(name, given, shape)):
        thing.attrs[f"weight{number}"] = weight(*sizes)
        thing.attrs[f"weight{number}"].grad = given.get("trainable") is not False


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
    """Return all tensors on the way to the outputs, with the weights of their layers built."""
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
    """Return the outputs of layers in sequence."""
    found: list[Tensor] = []
    current: Tensor | None = None
    for each in thing.children:
        inner = settled(each)
        if isinstance(inner, Tensor):
            current = inner
        elif isinstance(inner, Thing):
            start = inner.kwargs.get("input_shape", inner.kwargs.get("shape"))
            if kind_of(inner) == "InputLayer" and inner.args:
                start = inner.args[0]
            if current is None and isinstance(settled(start), list | tuple):
                current = Tensor((UNKNOWN, *settled(start)), library="keras")
            if current is None and isinstance(settled(inner.kwargs.get("input_dim")), int):
                length = settled(inner.kwargs.get("input_length", UNKNOWN))
                is_words = inner.path.endswith("Embedding")
                current = Tensor((UNKNOWN, length if is_words else settled(inner.kwargs["input_dim"])), library="keras")
            if current is None:
                current = thing.attrs.get(FED, Tensor(None, library="keras"))
            current = applied(inner, (current,))
            found.append(current)
    return found


HANDLERS: dict[str, Callable[[Asked], Value]] = {
    "keras.Input": _input, "keras.layers.Input": _input, "keras.Sequential": _sequential,
    "keras.models.Sequential": _sequential,
    "keras.Sequential.add": _add, "keras.models.Sequential.add": _add, "keras.Model": _model,
    "keras.models.Model": _model,
}  # fmt: skip
