"""Functions of torch that make tensors: filled, from numbers, or joined from others."""

from __future__ import annotations

from collections.abc import Callable

from crucible.analysis.interpreter.iteration import item_like, items_of, length_of
from crucible.analysis.library.call import Asked
from crucible.analysis.values.tensors import lost, tensor
from crucible.analysis.values.values import UNKNOWN, Name, Tensor, Thing, Value, settled, whole

Handler = Callable[[Asked], Value]


def shape_from(asked: Asked) -> tuple[Value, ...] | None:
    """Return the shape in `f(2, 3)`, `f((2, 3))` or `f(size=(2, 3))`, or None."""
    size = asked.kwargs.get("size")
    args = (size,) if size is not None else asked.args
    if len(args) == 1 and isinstance(settled(args[0]), list | tuple):
        args = tuple(settled(args[0]))
    numbers = [whole(each) for each in args]
    return tuple([UNKNOWN if each is None else each for each in numbers]) if args else None


def kind_of(asked: Asked, default: str) -> str:
    """Return the dtype argument, or the default."""
    chosen = settled(asked.kwargs.get("dtype"))
    return chosen.path.rpartition(".")[2] if isinstance(chosen, Name) else default


def _filled(kind: str = "float32") -> Handler:
    def act(asked: Asked) -> Value:
        return tensor(shape_from(asked), kind_of(asked, kind), asked.kwargs.get("requires_grad") is True)

    return act


def _randint(asked: Asked) -> Value:
    size = asked.kwargs.get("size", asked.args[-1] if asked.args else ())
    size = settled(size)
    dims = (
        tuple(whole(each) if whole(each) is not None else UNKNOWN for each in size)
        if isinstance(size, list | tuple)
        else None
    )
    return tensor(dims, kind_of(asked, "int64"))


def _filled_with(asked: Asked) -> Value:
    """Return the tensor of `full(size, value)`: only the first argument is a size."""
    size = settled(asked.get(0, "size"))
    dims = tuple(size) if isinstance(size, list | tuple) else (size,)
    return tensor(tuple(UNKNOWN if whole(each) is None else whole(each) for each in dims), kind_of(asked, "float32"))


def _steps(asked: Asked) -> Value:
    count = whole(asked.get(2, "steps"))
    return tensor((UNKNOWN if count is None else count,), kind_of(asked, "float32"))


def _arange(asked: Asked) -> Value:
    length = length_of(Thing("range", tuple(each for each in asked.args[:3])))
    return tensor((UNKNOWN if length is None else length,), kind_of(asked, "int64"))


def _like(asked: Asked) -> Value:
    source = settled(asked.get(0, "input"))
    return tensor(source.shape, kind_of(asked, source.kind)) if isinstance(source, Tensor) else UNKNOWN


def _literal(asked: Asked) -> Value:
    value = settled(asked.get(0, "data"))
    if isinstance(value, Tensor):
        return value
    shape: list[Value] = []
    kind = "float32"
    while isinstance(value, list | tuple):
        shape.append(len(value))
        value = value[0] if value else 0
    if isinstance(value, bool | int):
        kind = "int64"
    known = isinstance(value, int | float | bool)
    return tensor(tuple(shape) if known else None, kind_of(asked, kind))


def _from_numpy(asked: Asked) -> Value:
    source = settled(asked.get(0, "ndarray"))
    return source if isinstance(source, Tensor) else Tensor(None)


def stacked(asked: Asked, parts: list[Value] | None, place: Value, length: int | None = None) -> Value:
    """Return tensors stacked along a new dimension; of `length` parts if they are not known one by one."""
    first = settled(parts[0]) if parts else None
    if not isinstance(first, Tensor) or first.shape is None or not isinstance(place, int):
        return lost(asked.machine)
    where = place % (len(first.shape) + 1)
    count: Value = len(parts) if parts and length is None else length if length is not None else UNKNOWN
    shape = (*first.shape[:where], count, *first.shape[where:])
    return tensor(shape, first.kind, any(isinstance(each, Tensor) and each.grad for each in parts or []))


def _stack(asked: Asked) -> Value:
    source = settled(asked.get(0, "tensors"))
    place = asked.get(1, "dim", 0)
    parts = items_of(source)
    if parts is None:
        return (
            stacked(asked, [item_like(source)], place, length_of(source) or -1)
            if length_of(source)
            else lost(asked.machine)
        )
    return stacked(asked, parts, place)


def _cat(asked: Asked) -> Value:
    parts = [settled(each) for each in items_of(settled(asked.get(0, "tensors"))) or []]
    place = asked.get(1, "dim", 0)
    tensors = [each for each in parts if isinstance(each, Tensor) and each.shape is not None]
    if not parts or len(tensors) != len(parts) or not isinstance(place, int) or not tensors[0].shape:
        return lost(asked.machine, *parts)
    place %= len(tensors[0].shape)
    counts = [whole(each.shape[place]) if each.shape and place < len(each.shape) else None for each in tensors]
    total: Value = UNKNOWN if None in counts else sum(each or 0 for each in counts)
    shape = tensors[0].shape
    return tensor((*shape[:place], total, *shape[place + 1 :]), tensors[0].kind, any(each.grad for each in tensors))


_MAKERS: dict[str, Handler] = {
    **dict.fromkeys(("zeros", "ones", "rand", "randn", "empty", "Tensor", "FloatTensor"), _filled()),
    **dict.fromkeys(("zeros_like", "ones_like", "randn_like", "rand_like", "empty_like"), _like),
    "full": _filled_with, "randint": _randint, "arange": _arange, "randperm": _arange, "linspace": _steps,
    "tensor": _literal, "as_tensor": _literal, "from_numpy": _from_numpy, "stack": _stack, "cat": _cat, "concat": _cat,
}  # fmt: skip
HANDLERS: dict[str, Handler] = {f"torch.{name}": act for name, act in _MAKERS.items()}
