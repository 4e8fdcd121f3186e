"""NumPy: arrays that a program makes or puts together, by their shapes."""

from __future__ import annotations

from collections.abc import Callable

from crucible.analysis.library import arrays
from crucible.analysis.library.arrays import dims
from crucible.analysis.library.asked import Asked
from crucible.analysis.values import Tensor, Value

_BY_ONE = ("random", "random_sample", "standard_normal")
_AFTER_TWO = ("normal", "uniform", "randint")
"""The size is their first argument, or their third."""


def _drawn(asked: Asked) -> Value:
    """Random numbers of a size that is told; one number where it is not."""
    shape = tuple(asked.args) if asked.name in ("rand", "randn") else asked.kwargs.get("size")
    if asked.name in ("random", "random_sample", "standard_normal") and asked.args:
        shape = asked.args[0]
    elif asked.name in _AFTER_TWO and len(asked.args) > 2:
        shape = asked.args[2]
    sizes = dims(shape)
    return (
        asked.thing()
        if not sizes
        else Tensor(sizes, "int64" if asked.name == "randint" else "float64", library="numpy")
    )


def _filled(asked: Asked) -> Value:
    shape = dims(asked.get(0, "shape"))
    return asked.thing() if shape is None else Tensor(shape, "float64", library="numpy")


HANDLERS: dict[str, Callable[[Asked], Value]] = {
    **{f"numpy.random.{name}": _drawn for name in ("rand", "randn", *_BY_ONE, *_AFTER_TWO)},
    **{f"numpy.{name}": _filled for name in ("zeros", "ones", "empty")},
    **{f"numpy.{name}": arrays.call for name in ("reshape", "concatenate", "stack", "transpose")},
}
