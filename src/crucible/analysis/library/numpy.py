"""NumPy: arrays that a program makes or joins, by their shapes."""

from __future__ import annotations

from collections.abc import Callable

from crucible.analysis.library import arrays
from crucible.analysis.library.arrays import dims
from crucible.analysis.library.call import Asked
from crucible.analysis.values.values import WIDTHS, Name, Tensor, Value, settled

_BY_SIDES = ("rand", "randn")
_SIZES = {
    "random": 0, "random_sample": 0, "standard_normal": 0, "choice": 1, "poisson": 1, "normal": 2, "uniform": 2,
    "randint": 2, "integers": 2, "binomial": 2,
}  # fmt: skip
FILLED = ("zeros", "ones", "empty", "full")
DRAWN = (*_BY_SIDES, *_SIZES)
"""Functions that make an array of a given size: one argument per side, or all at this position."""

_KINDS = {"zeros": 1, "ones": 1, "empty": 1, "full": 2, "random": 1, "standard_normal": 1, "randint": 3, "integers": 3}
"""The position of `dtype`."""

_WHOLE = ("randint", "integers", "poisson", "binomial")
_SHORT = {"float": "float64", "int": "int64", "bool_": "bool", "single": "float32", "f4": "float32", "i4": "int32"}


def size_told(name: str, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
    """Return the shape argument of such a call as it is written; None if it makes a single number."""
    if name in _BY_SIDES:
        return args or None
    place = _SIZES.get(name, 0)
    return kwargs.get("size", kwargs.get("shape", args[place] if place < len(args) else None))


def kind_told(name: str, args: tuple[Value, ...], kwargs: dict[str, Value]) -> str:
    """Return the dtype of such a call's result; 64 bits by default."""
    place = _KINDS.get(name, len(args))
    given = settled(kwargs.get("dtype", args[place] if place < len(args) else None))
    told = given.path.rpartition(".")[2] if isinstance(given, Name) else given
    kind = _SHORT.get(told, told) if isinstance(told, str) else ""
    return kind if kind in WIDTHS else "int64" if name in _WHOLE else "float64"


def _made(asked: Asked) -> Value:
    """Return an array of the given size."""
    shape = dims(size_told(asked.name, asked.args, asked.kwargs))
    if shape is None:
        return asked.thing()
    return Tensor(shape, kind_told(asked.name, asked.args, asked.kwargs), library="numpy")


HANDLERS: dict[str, Callable[[Asked], Value]] = {
    **{f"numpy.random.{name}": _made for name in DRAWN if name != "choice"},  # `choice` may return anything
    **{f"numpy.{name}": _made for name in FILLED},
    **{f"numpy.{name}": arrays.call for name in ("reshape", "concatenate", "stack", "transpose")},
}
