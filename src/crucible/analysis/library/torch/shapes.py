"""Methods of tensors that view the same items in another shape, or describe it."""

from __future__ import annotations

from collections.abc import Callable

from crucible.analysis.interpreter.iteration import UNROLLED
from crucible.analysis.library.call import Asked
from crucible.analysis.library.torch import forward_pass as torch_forward
from crucible.analysis.values.tensors import like, lost, product, tensor, view
from crucible.analysis.values.values import UNKNOWN, Name, Tensor, Value, settled, whole

Method = Callable[[Asked, Tensor], Value]


def dims_of(args: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return the sizes in `f(2, 3)` or `f((2, 3))`."""
    found = [settled(each) for each in args]
    return tuple(found[0] if len(found) == 1 and isinstance(found[0], list | tuple) else found)


def _reshaped(asked: Asked, source: Tensor) -> Value:
    dims = dims_of(asked.args or tuple(asked.kwargs.values())[:1])
    if dims and isinstance(dims[0], Name):
        return like(source, kind=dims[0].path.rpartition(".")[2])
    if not dims:
        return lost(asked.machine, source)
    numbers = [whole(each) for each in dims]
    if -1 in numbers:
        rest = product(tuple([each for each in numbers if each != -1])) if None not in numbers else None
        items = source.items
        missing = items // rest if items is not None and rest else None
        numbers = [missing if each == -1 else each for each in numbers]
    shape = tuple([UNKNOWN if each is None else each for each in numbers])
    if source.strided and asked.name == "reshape":
        return like(Tensor(shape, source.kind, source.grad))
    return view(source, shape)


def _permuted(source: Tensor, order: list[int]) -> Tensor:
    assert source.shape is not None
    made = view(source, tuple(source.shape[place] for place in order))
    made.strided = True
    return made


def _transposed(asked: Asked, source: Tensor) -> Value:
    places = [whole(each) for each in (asked.get(0, "dim0"), asked.get(1, "dim1"))]
    if source.shape is None or None in places or len(source.shape) < 2:
        return view(source, None)
    order = list(range(len(source.shape)))
    first, second = (each % len(order) for each in places if each is not None)
    order[first], order[second] = order[second], order[first]
    return _permuted(source, order)


def _permute(asked: Asked, source: Tensor) -> Value:
    dims = [whole(each) for each in dims_of(asked.args)]
    if source.shape is None or None in dims or len(dims) != len(source.shape):
        return view(source, None)
    return _permuted(source, [each % len(dims) for each in dims if each is not None])


def _flattened(asked: Asked, source: Tensor) -> Value:
    return torch_forward.flattened(asked.machine, source, asked.get(0, "start_dim", 0), asked.get(1, "end_dim", -1))


def _unsqueezed(asked: Asked, source: Tensor) -> Value:
    place = whole(asked.get(0, "dim"))
    if source.shape is None or place is None:
        return view(source, None)
    place %= len(source.shape) + 1
    return view(source, (*source.shape[:place], 1, *source.shape[place:]))


def _squeezed(asked: Asked, source: Tensor) -> Value:
    place = whole(asked.get(0, "dim"))
    if source.shape is None:
        return view(source, None)
    if place is None:
        return view(source, tuple(each for each in source.shape if each != 1))
    place %= max(1, len(source.shape))
    return view(source, tuple(each for number, each in enumerate(source.shape) if number != place or each != 1))


def _pieces(asked: Asked, source: Tensor) -> Value:
    """Return the parts of a tensor: `split` by size, `chunk` by number."""
    size, place = settled(asked.get(0, "split_size")), whole(asked.get(1, "dim", 0))
    if source.shape is None or place is None:
        return UNKNOWN
    place %= max(1, len(source.shape))
    total = whole(source.shape[place])
    lengths: list[int | None]
    if isinstance(size, list | tuple):
        lengths = [whole(each) for each in size]
    elif isinstance(size, int) and size > 0 and total is not None:
        each = -(-total // size) if asked.name == "chunk" else size
        lengths = [min(each, total - start) for start in range(0, total, max(1, each))[:UNROLLED]]
    elif isinstance(size, int) and asked.name == "chunk":
        lengths = [None] * min(size, UNROLLED)
    else:
        return UNKNOWN
    shapes = [
        (*source.shape[:place], UNKNOWN if each is None else each, *source.shape[place + 1 :]) for each in lengths
    ]
    return tuple(view(source, shape) for shape in shapes)


def _unbound(asked: Asked, source: Tensor) -> Value:
    place = whole(asked.get(0, "dim", 0))
    if not source.shape or place is None:
        return UNKNOWN
    place %= len(source.shape)
    count = whole(source.shape[place])
    if count is None or count > 512:
        return UNKNOWN
    return tuple(view(source, (*source.shape[:place], *source.shape[place + 1 :])) for _ in range(count))


def _expanded(asked: Asked, source: Tensor) -> Value:
    dims = dims_of(asked.args)
    if source.shape is None:
        return view(source, None)
    old = ((1,) * (len(dims) - len(source.shape))) + source.shape
    return view(source, tuple(mine if new == -1 else new for new, mine in zip(dims, old, strict=False)))


def _repeated(asked: Asked, source: Tensor) -> Value:
    dims = dims_of(asked.args)
    if source.shape is None or not all(isinstance(each, int) for each in dims):
        return lost(asked.machine, source)
    old = ((1,) * (len(dims) - len(source.shape))) + source.shape
    return tensor(
        tuple(UNKNOWN if whole(a) is None else a * b for a, b in zip(old, dims, strict=False)),
        source.kind,
        source.grad,
    )


def _size(asked: Asked, source: Tensor) -> Value:
    if source.shape is None:
        return UNKNOWN
    if not asked.args and "dim" not in asked.kwargs:
        return source.shape
    place = whole(asked.get(0, "dim"))
    return source.shape[place] if place is not None and -len(source.shape) <= place < len(source.shape) else UNKNOWN


def _viewed_as(asked: Asked, source: Tensor) -> Value:
    other = settled(asked.get(0, "other"))
    return view(source, other.shape if isinstance(other, Tensor) else None)


def _count(asked: Asked, source: Tensor) -> Value:
    items = source.items
    return UNKNOWN if items is None else items


def _dim(asked: Asked, source: Tensor) -> Value:
    return UNKNOWN if source.shape is None else len(source.shape)


def _turned(asked: Asked, source: Tensor) -> Value:
    """Return the transposed matrix of `t()`."""
    return _permuted(source, [1, 0]) if source.shape and len(source.shape) == 2 else view(source, None)


METHODS: dict[str, Method] = {
    "view": _reshaped, "reshape": _reshaped, "transpose": _transposed, "swapaxes": _transposed, "permute": _permute,
    "flatten": _flattened, "unsqueeze": _unsqueezed, "squeeze": _squeezed, "split": _pieces, "chunk": _pieces,
    "unbind": _unbound, "expand": _expanded, "repeat": _repeated, "size": _size, "view_as": _viewed_as,
    "reshape_as": _viewed_as, "numel": _count, "dim": _dim, "t": _turned,
}  # fmt: skip
