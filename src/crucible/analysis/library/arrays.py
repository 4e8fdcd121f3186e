"""Array functions that keras.ops, TensorFlow and jax.numpy share, by the shapes they return."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from crucible.analysis.interpreter.iteration import items_of, length_of
from crucible.analysis.library.call import Asked
from crucible.analysis.values.tensors import broadcast
from crucible.analysis.values.values import UNKNOWN, Tensor, Thing, Value, settled, whole, worded

Shape = tuple[Value, ...]
PREFIXES = (
    "keras.ops.", "keras.activations.", "keras.random.", "keras.backend.", "tensorflow.nn.", "tensorflow.math.",
    "tensorflow.image.", "tensorflow.random.", "tensorflow.linalg.", "jax.numpy.", "jax.nn.", "jax.lax.", "jax.random.",
)  # fmt: skip
_SAME = frozenset(
    {
        "relu", "gelu", "sigmoid", "tanh", "softmax", "log_softmax", "exp", "log", "log1p", "sqrt", "rsqrt",
        "abs", "square", "cast", "clip", "clip_by_value", "swish", "silu", "elu", "selu", "leaky_relu", "relu6",
        "softplus", "sin", "cos", "floor", "round", "identity", "stop_gradient", "l2_normalize", "normalize",
        "negative", "dropout", "convert_to_tensor", "nan_to_num", "sign", "hard_swish", "hard_silu", "erf",
        "cumsum", "flip", "roll", "ones_like", "zeros_like", "astype", "asarray", "array", "hard_sigmoid",
        "mish", "softsign", "standardize", "tril", "triu", "invert", "logical_not", "random_flip_left_right",
        "adjust_brightness",
    }
)  # fmt: skip
_PAIRS = frozenset(
    {
        "add", "subtract", "multiply", "divide", "true_divide", "maximum", "minimum", "power", "pow", "greater",
        "less", "equal", "not_equal", "greater_equal", "less_equal", "floor_divide", "mod", "squared_difference",
        "logical_and", "logical_or",
    }
)  # fmt: skip
_REDUCE = frozenset(
    {
        "mean", "sum", "max", "min", "prod", "amax", "amin", "any", "all", "var", "std", "argmax", "argmin",
        "logsumexp",
    }
)  # fmt: skip
_FILLED = frozenset(
    {
        "ones", "zeros", "empty", "full", "normal", "uniform", "truncated_normal", "random_normal",
    }
)  # fmt: skip


def call(asked: Asked) -> Value:
    """Return a tensor if a tensor is among the arguments, else an object as any call returns."""
    act = ACTS.get(_plain(asked.name))
    found = act(asked) if act is not None else None
    return asked.thing() if found is None else found


def _plain(name: str) -> str:
    return name.removeprefix("reduce_")


def _first(asked: Asked) -> Tensor | None:
    """Return the first argument if it is a tensor, else None."""
    given = settled(asked.args[0]) if asked.args else settled(next(iter(asked.kwargs.values()), None))
    return given if isinstance(given, Tensor) else None


def made(shape: Shape | None, *sources: Tensor) -> Tensor:
    """Return a tensor with the tensors it came from, so that a network can be traced back through it."""
    found = Tensor(shape, library="keras")
    if sources:
        found.origin = (Thing("keras.ops"), sources)
    return found


def dims(value: Value) -> Shape | None:
    """Return a shape from a number or a list; sizes that are not known become UNKNOWN. None for anything else."""
    given = settled(value)
    if isinstance(given, int) and not isinstance(given, bool):
        return (given,)
    if not isinstance(given, list | tuple):
        return None
    return tuple(UNKNOWN if whole(each) is None else whole(each) for each in given)


def _same(asked: Asked) -> Value:
    source = _first(asked)
    return None if source is None else made(source.shape, source)


def _pair(asked: Asked) -> Value:
    sources = [settled(each) for each in (*asked.args, *asked.kwargs.values())]
    tensors = [each for each in sources if isinstance(each, Tensor)]
    if not tensors:
        return _of_numbers(asked.name, sources)
    shape = tensors[0].shape
    for each in tensors[1:2]:
        shape = broadcast(shape, each.shape)
    return made(shape, *tensors[:2])


_NUMBERS: dict[str, Callable[[float, float], float]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "maximum": max, "minimum": min,
    "greater": operator.gt, "less": operator.lt, "equal": operator.eq, "not_equal": operator.ne,
    "greater_equal": operator.ge, "less_equal": operator.le,
}  # fmt: skip


def _of_numbers(name: str, sources: list[Value]) -> Value:
    """Return the result of a function such as `ops.equal(filters, 64)` for two plain numbers, or None."""
    act = _NUMBERS.get(name)
    if act is None or len(sources) != 2 or not all(isinstance(each, int | float) for each in sources):
        return None
    return act(*sources)


def _reduced(asked: Asked) -> Value:
    source = _first(asked)
    if source is None:
        return None
    axes, keep = settled(asked.get(1, "axis")), asked.kwargs.get("keepdims", asked.kwargs.get("keep_dims")) is True
    if source.shape is None:
        return made(None, source)
    gone = _places(axes, len(source.shape)) if axes is not None else set(range(len(source.shape)))
    kept = [1 if at in gone else size for at, size in enumerate(source.shape) if keep or at not in gone]
    return made(tuple(kept), source)


def _places(axes: Value, rank: int) -> set[int]:
    """Return the axes as numbers from 0."""
    many = axes if isinstance(axes, list | tuple) else (axes,)
    return {number % rank for each in many if (number := whole(each)) is not None and rank}


def _reshaped(asked: Asked) -> Value:
    source, target = _first(asked), dims(asked.get(1, "newshape", asked.kwargs.get("shape")))
    if source is None:
        return None
    return made(fitted(source.shape, target), source)


def fitted(shape: Shape | None, target: Shape | None) -> Shape | None:
    """Return the target shape with its -1 resolved, if everything else is known."""
    if target is None or -1 not in target:
        return target
    sizes, rest = [whole(each) for each in shape or (None,)], [whole(each) for each in target if each != -1]
    if None in sizes or None in rest:
        return tuple(UNKNOWN if each == -1 else each for each in target)
    other = math.prod(each or 0 for each in rest)
    return tuple(math.prod(each or 0 for each in sizes) // other if each == -1 and other else each for each in target)


def _transposed(asked: Asked) -> Value:
    source, axes = _first(asked), dims(asked.get(1, "axes", asked.kwargs.get("perm")))
    if source is None:
        return None
    if source.shape is None:
        return made(None, source)
    if axes is None:
        return made(tuple(reversed(source.shape)), source)
    rank = len(source.shape)
    fits = len(axes) == rank and all(isinstance(each, int) and -rank <= each < rank for each in axes)
    return made(tuple(source.shape[each] for each in axes) if fits else None, source)


def _swapped(asked: Asked) -> Value:
    source, one, other = _first(asked), whole(asked.get(1, "axis1")), whole(asked.get(2, "axis2"))
    if source is None or source.shape is None or one is None or other is None:
        return None if source is None else made(None, source)
    order = list(source.shape)
    if not all(-len(order) <= at < len(order) for at in (one, other)):
        return made(None, source)
    order[one], order[other] = order[other], order[one]
    return made(tuple(order), source)


def _tensors(value: Value) -> list[Tensor]:
    many = items_of(settled(value)) or []
    return [each for item in many if isinstance(each := settled(item), Tensor)]


def _joined(asked: Asked) -> Value:
    parts, axis = _tensors(asked.get(0, "xs", asked.kwargs.get("values"))), whole(asked.get(1, "axis"))
    if not parts:
        return None
    return made(joined([each.shape for each in parts], 0 if axis is None else axis), *parts)


def joined(shapes: list[Shape | None], axis: int) -> Shape | None:
    """Return the shape of the concatenated arrays, or None."""
    first = shapes[0]
    if first is None or any(each is None or len(each) != len(first) for each in shapes):
        return None
    if not -len(first) <= axis < len(first):
        return None
    sizes = [whole(each[axis]) for each in shapes if each is not None]
    total = UNKNOWN if None in sizes else sum(size or 0 for size in sizes)
    return tuple(total if at == axis % len(first) else size for at, size in enumerate(first))


def _stacked(asked: Asked) -> Value:
    parts, axis = _tensors(asked.get(0, "x", asked.kwargs.get("values"))), whole(asked.get(1, "axis")) or 0
    if not parts or parts[0].shape is None:
        return made(None, *parts) if parts else None
    shape = list(parts[0].shape)
    shape.insert(axis if axis >= 0 else len(shape) + 1 + axis, len(parts))
    return made(tuple(shape), *parts)


def _expanded(asked: Asked) -> Value:
    source, axis = _first(asked), whole(asked.get(1, "axis"))
    if source is None or source.shape is None or axis is None:
        return None if source is None else made(None, source)
    shape = list(source.shape)
    shape.insert(axis if axis >= 0 else len(shape) + 1 + axis, 1)
    return made(tuple(shape), source)


def _squeezed(asked: Asked) -> Value:
    source, axis = _first(asked), settled(asked.get(1, "axis"))
    if source is None or source.shape is None:
        return source
    gone = _places(axis, len(source.shape)) if axis is not None else None
    kept = [s for at, s in enumerate(source.shape) if (at not in gone if gone is not None else s != 1)]
    return made(tuple(kept), source)


def _product(asked: Asked) -> Value:
    left, right = settled(asked.get(0, "x1")), settled(asked.get(1, "x2"))
    if not isinstance(left, Tensor) or not isinstance(right, Tensor):
        return None
    return made(multiplied(left.shape, right.shape, asked.kwargs.get("transpose_b") is True), left, right)


def multiplied(left: Shape | None, right: Shape | None, turned: bool = False) -> Shape | None:
    """Return the shape of a matrix product, or None. `turned`: the right matrix is transposed."""
    if not left or not right:
        return None
    if len(right) == 1:
        return left[:-1]
    return (*left[:-1], right[-2] if turned else right[-1])


def _einsum(asked: Asked) -> Value:
    equation, parts = settled(asked.args[0]) if asked.args else None, [settled(each) for each in asked.args[1:]]
    tensors = [each for each in parts if isinstance(each, Tensor)]
    if not isinstance(equation, str) or "->" not in equation or "..." in equation or len(tensors) != len(parts):
        return made(None, *tensors) if tensors else None
    ins, _, out = equation.replace(" ", "").partition("->")
    sizes: dict[str, Value] = {}
    for letters, each in zip(ins.split(","), tensors, strict=False):
        sizes.update(zip(letters, each.shape or (), strict=False))
    return made(tuple(sizes.get(letter, UNKNOWN) for letter in out), *tensors)


def _shape(asked: Asked) -> Value:
    source = _first(asked)
    return None if source is None or source.shape is None else source.shape


def _split(asked: Asked) -> Value:
    source, parts = _first(asked), settled(asked.get(1, "indices_or_sections", asked.kwargs.get("num_or_size_splits")))
    count, axis = whole(parts) or 0, whole(asked.get(2, "axis")) or 0
    if source is None or source.shape is None or not 0 < count <= 64:
        return None
    if not -len(source.shape) <= axis < len(source.shape):
        return None
    size = whole(source.shape[axis])
    each = UNKNOWN if size is None else size // count
    shape = tuple(each if at == axis % len(source.shape) else dim for at, dim in enumerate(source.shape))
    return [made(shape, source) for _ in range(count)]


def _range(asked: Asked) -> Value:
    named = [asked.kwargs[name] for name in ("start", "stop", "limit", "step", "delta") if name in asked.kwargs]
    length = length_of(Thing("range", tuple([*asked.args, *named][:3])))
    return Tensor((UNKNOWN if length is None else length,), "int32", library="keras")


def _filled(asked: Asked) -> Value:
    """Return a filled array. In jax.random the key comes before the shape."""
    place = 1 if asked.path.startswith("jax.random.") else 0
    shape = dims(asked.get(place, "shape"))
    return None if shape is None else Tensor(shape, library="keras")


def _spread(asked: Asked) -> Value:
    source, target = _first(asked), dims(asked.get(1, "shape"))
    return None if source is None else made(target, source)


def _patches(asked: Asked) -> Value:
    source = _first(asked)
    sizes, steps = dims(asked.get(1, "size", asked.kwargs.get("sizes"))), dims(asked.get(2, "strides"))
    if source is None or source.shape is None or len(source.shape) != 4 or not sizes:
        return None if source is None else made(None, source)
    side = whole(sizes[1] if len(sizes) == 4 else sizes[0])
    step = whole((steps[1] if len(steps) == 4 else steps[0]) if steps else side)
    space = [whole(each) for each in source.shape[1:3]]
    channels = whole(source.shape[3])
    if not side or not step or None in space or channels is None:
        return made((source.shape[0], UNKNOWN, UNKNOWN, UNKNOWN), source)
    same = worded(asked.kwargs.get("padding", "valid")).lower() == "same"
    down, across = (-(-(each or 0) // step) if same else ((each or 0) - side) // step + 1 for each in space)
    return made((source.shape[0], down, across, side * side * channels), source)


def _resized(asked: Asked) -> Value:
    source, size = _first(asked), dims(asked.get(1, "size"))
    if source is None or source.shape is None or size is None or len(size) != 2:
        return None if source is None else made(None, source)
    return made((*source.shape[:-3], *size, source.shape[-1]), source)


def _taken(asked: Asked) -> Value:
    source, places = _first(asked), settled(asked.get(1, "indices"))
    axis = whole(asked.get(2, "axis"))
    if source is None or source.shape is None:
        return None if source is None else made(None, source)
    at = (axis or 0) % len(source.shape) if source.shape else 0
    if isinstance(places, Tensor):
        inner: Shape = places.shape or (UNKNOWN,)
    elif isinstance(places, list | tuple):
        inner = (len(places),)
    else:
        inner = () if whole(places) is not None else (UNKNOWN,)
    return made((*source.shape[:at], *inner, *source.shape[at + 1 :]), source)


ACTS: dict[str, Callable[[Asked], Value]] = {
    **dict.fromkeys(_SAME, _same), **dict.fromkeys(_PAIRS, _pair), **dict.fromkeys(_REDUCE, _reduced),
    **dict.fromkeys(_FILLED, _filled),
    "where": _pair, "reshape": _reshaped, "transpose": _transposed, "permute_dimensions": _transposed,
    "swapaxes": _swapped, "concatenate": _joined, "concat": _joined, "stack": _stacked, "expand_dims": _expanded,
    "squeeze": _squeezed, "matmul": _product, "dot": _product, "einsum": _einsum, "shape": _shape, "split": _split,
    "arange": _range, "range": _range, "broadcast_to": _spread, "extract_patches": _patches, "resize": _resized,
    "take": _taken, "gather": _taken,
}  # fmt: skip
TENSORFLOW = {
    f"tensorflow.{name}": call
    for plain in ACTS
    for name in ((plain, f"reduce_{plain}") if plain in _REDUCE else (plain,))
    if plain not in ("all", "any", "array", "normal", "uniform", "empty", "full")
}
