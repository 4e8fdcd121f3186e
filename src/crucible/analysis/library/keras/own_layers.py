"""Layers that a program writes itself for Keras: their weights, and `build` before the first call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from crucible.analysis.interpreter.iteration import items_of
from crucible.analysis.library.arrays import dims
from crucible.analysis.library.call import Asked
from crucible.analysis.values.tensors import weight
from crucible.analysis.values.values import UNKNOWN, Function, Instance, Tensor, Value, settled

if TYPE_CHECKING:
    from crucible.analysis.interpreter.machine import Machine

BASES = frozenset({"keras.layers.Layer", "keras.Layer", "keras.Model", "keras.models.Model"})
BUILT = "\0built"


def built(machine: Machine, owner: Instance, args: tuple[Value, ...]) -> None:
    """Call `build` with the shape of the input, once, before the first call of the layer, as Keras does."""
    from crucible.analysis.interpreter.functions import follow

    begin = owner.cls.lookup("build")
    if BUILT in owner.attrs or not args or BASES.isdisjoint(owner.bases):
        return
    owner.attrs[BUILT] = True
    if isinstance(begin, Function):
        follow(machine, begin, (owner, _shapes(args[0])), {})


def _shapes(value: Value) -> Value:
    """Return the shapes of tensors, in lists as they are."""
    given = settled(value)
    if isinstance(given, Tensor):
        return given.shape if given.shape is not None else UNKNOWN
    parts = items_of(given) if isinstance(given, list | tuple) else None
    return [_shapes(each) for each in parts] if parts else UNKNOWN


def _add_weight(asked: Asked) -> Value:
    """Return the weight of `add_weight(shape, ...)`, or of the older `add_weight(name, shape, ...)`."""
    given = asked.kwargs.get("shape", next((each for each in asked.args if dims(each) is not None), None))
    shape = dims(given)
    made = weight(*shape) if shape is not None else weight(UNKNOWN)
    if asked.kwargs.get("trainable") is False:
        made.grad = False
    if isinstance(asked.owner, Instance):
        asked.owner.attrs[f"\0weight{len(asked.owner.attrs)}"] = made
    return made


def _variable(asked: Asked) -> Value:
    first = settled(asked.get(0, "initial_value", asked.kwargs.get("initializer")))
    shape = first.shape if isinstance(first, Tensor) else dims(asked.kwargs.get("shape"))
    if shape is None:
        return asked.thing()
    made = weight(*shape)
    made.grad = asked.kwargs.get("trainable") is not False
    return made


def own_weights(owner: Instance) -> list[Tensor]:
    """Return the weights that the object holds itself, without those of its layers."""
    held = [settled(each) for each in owner.attrs.values()]
    return [each for each in held if isinstance(each, Tensor) and each.store is not None and each.store.weight]


HANDLERS: dict[str, Callable[[Asked], Value]] = {
    **{f"{base}.{name}": _add_weight for base in BASES for name in ("add_weight", "add_variable")},
    "tensorflow.Variable": _variable,
    "keras.Variable": _variable,
}
