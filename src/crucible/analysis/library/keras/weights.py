"""Shapes of the weights that a Keras layer gets when it is first called."""

from __future__ import annotations

from crucible.analysis.library.keras.arguments import Shape, kind_of, read, sizes, times
from crucible.analysis.values.values import UNKNOWN, Thing, Value, settled


def weights(name: str, given: dict[str, Value], shape: Shape) -> list[Shape]:
    """Return the shapes of a layer's weights for an input of this shape."""
    last = shape[-1] if shape else UNKNOWN
    units = given.get("units", given.get("filters", UNKNOWN))
    bias: list[Shape] = [] if given.get("use_bias") is False else [(units,)]
    kernel = sizes(given.get("kernel_size", 1), _rank(name))
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
        return 2 * _inner(given.get("layer"), shape)
    if name == "TimeDistributed":
        return _inner(given.get("layer"), (shape[0], *shape[2:]))
    if name == "MultiHeadAttention":
        return _attention(given, last)
    if name == "PReLU":
        return [tuple(shape[1:])]
    return []


def _attention(given: dict[str, Value], last: Value) -> list[Shape]:
    heads, key = given.get("num_heads", UNKNOWN), given.get("key_dim", UNKNOWN)
    wide, values = times(heads, key), times(heads, given.get("value_dim") or key)
    out = given.get("output_shape") or last
    rows: list[Shape] = [(last, wide), (last, wide), (last, values), (values, out)]
    biases: list[Shape] = [(wide,), (wide,), (values,), (out,)]
    return rows if given.get("use_bias") is False else [*rows, *biases]


def _inner(layer_: Value, shape: Shape) -> list[Shape]:
    inner = settled(layer_)
    if not isinstance(inner, Thing):
        return []
    inner.attrs["wrapped"] = True
    return weights(kind_of(inner), read(inner), shape)


def _recurrent(name: str, units: Value, last: Value) -> list[Shape]:
    gates = {"LSTM": 4, "GRU": 3, "SimpleRNN": 1}[name]
    wide = times(gates, units)
    return [(last, wide), (units, wide), (wide,) if name != "GRU" else (2, wide)]


def _rank(name: str) -> int:
    return next((int(letter) for letter in name if letter.isdigit()), 1)
