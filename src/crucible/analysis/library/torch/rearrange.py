"""Functions that move items of tensors: pad, repeat, pick, sort."""

from __future__ import annotations

from collections.abc import Callable

from crucible.analysis.library.call import Asked
from crucible.analysis.values.tensors import like, lost, tensor, view
from crucible.analysis.values.values import UNKNOWN, Tensor, Value, settled, whole

Method = Callable[[Asked, Tensor], Value]


def padded(asked: Asked) -> Value:
    """Return the result of `F.pad(x, (left, right, top, bottom))`, whose widths begin with the last dimension."""
    source, widths = settled(asked.get(0, "input")), settled(asked.get(1, "pad"))
    if not isinstance(source, Tensor) or source.shape is None or not isinstance(widths, list | tuple):
        return lost(asked.machine, source)
    return pad(source, [whole(each) for each in widths])


def pad(source: Tensor, widths: list[int | None]) -> Tensor:
    """Return the tensor padded by these widths, in pairs from the last dimension on."""
    shape = list(source.shape or ())
    for place in range(min(len(widths) // 2, len(shape))):
        before, after, size = widths[2 * place], widths[2 * place + 1], whole(shape[-1 - place])
        unknown = before is None or after is None or size is None
        shape[-1 - place] = UNKNOWN if unknown else (size or 0) + (before or 0) + (after or 0)
    return tensor(tuple(shape), source.kind, source.grad)


def _place(source: Tensor, value: Value) -> int | None:
    """Return the dimension as a number from 0, or None."""
    number = whole(value)
    return None if number is None or not source.shape else number % len(source.shape)


def _with(source: Tensor, place: int, size: Value) -> tuple[Value, ...]:
    """Return the shape with another size of one dimension."""
    shape = source.shape or ()
    return (*shape[:place], size, *shape[place + 1 :])


def _repeated(asked: Asked, source: Tensor) -> Value:
    times, place = whole(asked.get(0, "repeats")), _place(source, asked.get(1, "dim"))
    if source.shape is None or place is None:
        return lost(asked.machine, source)
    size = whole(source.shape[place])
    made = UNKNOWN if size is None or times is None else size * times
    return tensor(_with(source, place, made), source.kind, source.grad)


def _picked(asked: Asked, source: Tensor) -> Value:
    place, index = _place(source, asked.get(0, "dim")), settled(asked.get(1, "index"))
    if place is None or not isinstance(index, Tensor):
        return lost(asked.machine, source)
    if source.grad:
        asked.machine.tape.save(index)
    return tensor(_with(source, place, (index.shape or (UNKNOWN,))[0]), source.kind, source.grad)


def _narrowed(asked: Asked, source: Tensor) -> Value:
    place, size = _place(source, asked.get(0, "dim")), whole(asked.get(2, "length"))
    if place is None:
        return view(source, None)
    return view(source, _with(source, place, UNKNOWN if size is None else size))


def _unflattened(asked: Asked, source: Tensor) -> Value:
    place, parts = _place(source, asked.get(0, "dim")), settled(asked.get(1, "sizes"))
    if place is None or not isinstance(parts, list | tuple) or source.shape is None:
        return view(source, None)
    return view(source, (*source.shape[:place], *parts, *source.shape[place + 1 :]))


def _moved(asked: Asked, source: Tensor) -> Value:
    start, end = _place(source, asked.get(0, "source")), _place(source, asked.get(1, "destination"))
    if start is None or end is None or source.shape is None:
        return view(source, None)
    shape = list(source.shape)
    shape.insert(end, shape.pop(start))
    made = view(source, tuple(shape))
    made.strided = True
    return made


def _sorted(asked: Asked, source: Tensor) -> Value:
    places = tensor(source.shape, "int64")
    if source.grad:
        asked.machine.tape.save(places)
    return (like(source), places)


METHODS: dict[str, Method] = {
    "repeat_interleave": _repeated, "index_select": _picked, "narrow": _narrowed, "unflatten": _unflattened,
    "movedim": _moved,
    "sort": _sorted,
}  # fmt: skip
HANDLERS: dict[str, Callable[[Asked], Value]] = {"torch.nn.functional.pad": padded}
