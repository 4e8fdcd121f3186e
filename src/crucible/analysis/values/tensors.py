"""Tensors: shapes through arithmetic and indexing, and what each operation keeps for the backward pass."""

from __future__ import annotations

import ast

from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.values.values import (
    UNKNOWN,
    WIDTHS,
    Member,
    Name,
    Store,
    Tensor,
    Thing,
    Value,
    counted,
    settled,
    whole,
)

Shape = tuple[Value, ...]
_WHOLE = frozenset({int})
_ATTRIBUTES = frozenset({"shape", "T", "mT", "H", "data", "real", "imag", "ndim", "dtype", "requires_grad"})
"""Attributes of tensors that are not methods."""

_FLOATS = ("float64", "float32", "float16", "bfloat16")


def tensor(shape: Shape | None, kind: str = "float32", grad: bool = False, library: str = "torch") -> Tensor:
    """Return a tensor with memory of its own."""
    items = counted(shape)
    store = None if items is None else Store(items * WIDTHS.get(kind, 4))
    return Tensor(shape, kind, grad, store, library, False, None, items)


def weight(*shape: Value) -> Tensor:
    """Return a parameter; dimensions that are not integers are UNKNOWN."""
    if not _WHOLE.issuperset(map(type, shape)):
        shape = tuple(map(_dimension, shape))
    items = counted(shape)
    store = Store(0.0 if items is None else items * WIDTHS["float32"], True)
    return Tensor(shape, "float32", True, store, "torch", False, None, items)


def _dimension(size: Value) -> Value:
    number = whole(size)
    return size if number is None and isinstance(size, int) else UNKNOWN if number is None else number


def view(source: Tensor, shape: Shape | None) -> Tensor:
    """Return a tensor of another shape on the same memory."""
    return Tensor(shape, source.kind, source.grad, source.store, source.library)


def like(source: Tensor, grad: bool | None = None, kind: str | None = None) -> Tensor:
    """Return a new tensor of the same shape."""
    return tensor(source.shape, kind or source.kind, source.grad if grad is None else grad, source.library)


def lost(machine: Machine, *sources: Value) -> Tensor:
    """Mark the tape as incomplete, and return a tensor of unknown shape: something cannot be followed."""
    machine.tape.lost()
    return Tensor(None, "float32", any(isinstance(each, Tensor) and each.grad for each in sources))


def broadcast(one: Shape | None, other: Shape | None) -> Shape | None:
    """Return the broadcast shape, or None if one shape is unknown."""
    if one is None or other is None:
        return None
    if one == other:
        return other
    size = max(len(one), len(other))
    pairs = zip(((1,) * (size - len(one))) + one, ((1,) * (size - len(other))) + other, strict=True)
    return tuple(
        right if left == 1 else left if right == 1 or left == right else _wider(left, right) for left, right in pairs
    )


def _wider(left: Value, right: Value) -> Value:
    return (
        left if isinstance(left, int) and not isinstance(right, int) else right if isinstance(right, int) else UNKNOWN
    )


def promoted(one: Tensor, other: Tensor) -> str:
    """Return the dtype of a result of both."""
    if one.kind == other.kind:
        return one.kind
    kinds = [each.kind for each in (one, other)]
    for kind in _FLOATS:
        if kind in kinds:
            return kind
    return kinds[0] if one.width >= other.width else kinds[1]


def tensor_arithmetic(machine: Machine, kind: type, left: Value, right: Value) -> Value:
    """Return the result of a binary operator with at least one tensor."""
    if kind is ast.MatMult:
        return matmul(machine, left, right)
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        grad = left.grad or right.grad
        result = tensor(broadcast(left.shape, right.shape), promoted(left, right), grad)
        _save_operands(machine, kind, left, right)
    else:
        source = left if isinstance(left, Tensor) else right
        assert isinstance(source, Tensor)
        result = like(source)
        if source.kind not in _FLOATS and (kind is ast.Div or isinstance(left, float) or isinstance(right, float)):
            result = like(source, kind="float32")
        if kind is ast.Pow and source.grad:
            machine.tape.save(source)
        if kind is ast.Div and source is right and source.grad:
            machine.tape.save(source)
    machine.tape.flops += result.items or 0
    return result


def tensor_comparison(kind: type, left: Value, right: Value) -> Value:
    """Return a tensor of bools; for `is` and `in` a plain bool, or UNKNOWN."""
    if kind in (ast.Is, ast.IsNot, ast.In, ast.NotIn):
        return (kind is ast.IsNot) if left is None or right is None else UNKNOWN
    shapes = [each.shape for each in (left, right) if isinstance(each, Tensor)]
    return tensor(shapes[0] if len(shapes) == 1 else broadcast(shapes[0], shapes[1]), "bool")


def _save_operands(machine: Machine, kind: type, left: Tensor, right: Tensor) -> None:
    if kind is ast.Mult or kind is ast.Div:
        if left.grad:
            machine.tape.save(right)
        if right.grad:
            machine.tape.save(left)
    if kind is ast.Div and right.grad:
        machine.tape.save(right)


def cast(machine: Machine, source: Tensor) -> Tensor:
    """Return the half-precision copy that autocast makes, of a weight only once; else the tensor itself."""
    half = machine.tape.half
    if half is None or source.kind != "float32":
        return source
    made = tensor(source.shape, half, source.grad)
    if source.store is not None and source.store.weight and made.store is not None:
        made.store = machine.tape.casts.setdefault((id(source.store), half), made.store)
    return made


def matmul(machine: Machine, left: Value, right: Value) -> Value:
    """Return the matrix product."""
    if not isinstance(left, Tensor) or not isinstance(right, Tensor):
        return lost(machine, left, right)
    if not left.shape or not right.shape:
        return lost(machine, left, right)
    if machine.tape.half is not None:
        left, right = cast(machine, left), cast(machine, right)
    assert left.shape
    assert right.shape
    if left.grad:
        machine.tape.save(right)
    if right.grad:
        machine.tape.save(left)
    if len(right.shape) == 1:
        shape = left.shape[:-1]
    elif len(left.shape) == 1:
        shape = (*right.shape[:-2], right.shape[-1])
    else:
        batch = broadcast(left.shape[:-2], right.shape[:-2]) or ()
        shape = (*batch, left.shape[-2], right.shape[-1])
    result = tensor(shape, promoted(left, right), left.grad or right.grad)
    machine.tape.flops += 2 * (result.items or 0) * (whole(left.shape[-1]) or 1)
    return result


def linear(machine: Machine, source: Tensor, matrix: Tensor, out: Value) -> Tensor:
    """Return `source` multiplied with a weight of shape (out, in)."""
    if source.shape is None or not source.shape:
        return lost(machine, source)
    if machine.tape.half is not None:
        source, matrix = cast(machine, source), cast(machine, matrix)
    assert source.shape
    if matrix.grad:
        machine.tape.save(source)
    if source.grad:
        machine.tape.save(matrix)
    result = tensor((*source.shape[:-1], out), source.kind, source.grad or matrix.grad)
    machine.tape.flops += 2 * (result.items or 0) * (whole(source.shape[-1]) or 1)
    return result


def indexed(machine: Machine, source: Tensor, key: Value) -> Tensor:
    """Return the tensor at an index: a view, or a copy if the index is a tensor or a list."""
    if source.shape is None:
        return Tensor(None, source.kind, source.grad, source.store)
    keys = tuple(_axis(each) for each in (key if isinstance(key, tuple) else (key,)))
    shape: list[Value] = []
    rest = list(source.shape)
    copies = False
    for position, each in enumerate(keys):
        if each is None:
            shape.append(1)
        elif each is Ellipsis:
            taken = len([one for one in keys[position + 1 :] if one is not None])
            shape += rest[: max(0, len(rest) - taken)]
            rest = rest[max(0, len(rest) - taken) :]
        elif not rest:
            return lost(machine, source)
        elif isinstance(each, Thing) and each.path == "slice":
            shape.append(_sliced(rest.pop(0), each.args))
        elif isinstance(each, Tensor):
            copies = True
            shape += list(each.shape or (UNKNOWN,)) if each.kind != "bool" else [UNKNOWN]
            del rest[: len(each.shape or (1,)) if each.kind == "bool" else 1]
        elif isinstance(each, list):
            copies = True
            shape.append(len(each))
            rest.pop(0)
        else:
            rest.pop(0)
    made = (*shape, *rest)
    return tensor(made, source.kind, source.grad) if copies else view(source, made)


def _axis(key: Value) -> Value:
    """Return None for `numpy.newaxis`, which is None by another name."""
    return None if isinstance(key, Name) and key.path.endswith(".newaxis") else key


def _sliced(size: Value, bounds: tuple[Value, ...]) -> Value:
    """Return the size of a dimension after slicing."""
    low, high, step = (settled(each) for each in bounds)
    if low is None and high is None and step is None:
        return size
    numbers_known = all(each is None or isinstance(each, int) for each in (low, high, step))
    if not numbers_known or step == 0:
        return UNKNOWN
    if isinstance(size, int):
        return len(range(*slice(low, high, step).indices(size)))
    if isinstance(high, int) and high > 0 and (low is None or (isinstance(low, int) and low >= 0)) and step is None:
        return high - (low or 0)
    if high is None and isinstance(low, int) and low < 0 and step is None:
        return -low
    return UNKNOWN


def tensor_attribute(source: Tensor, name: str) -> Value:
    """Return the value of an attribute of a tensor."""
    if name not in _ATTRIBUTES:
        return Member(source, name)
    if name == "shape":
        return source.shape if source.shape is not None else UNKNOWN
    if name in ("T", "mT", "H"):
        swapped = (
            (*source.shape[:-2], source.shape[-1], source.shape[-2])
            if source.shape and len(source.shape) > 1
            else source.shape
        )
        return view(source, swapped)
    if name in ("data", "real", "imag"):
        return Tensor(source.shape, source.kind, False, source.store)
    if name == "ndim":
        return len(source.shape) if source.shape is not None else UNKNOWN
    if name == "dtype":
        return Name(f"torch.{source.kind}")
    assert name == "requires_grad"
    return source.grad


def product(shape: Shape) -> int | None:
    """Return the product of the sizes, or None if one is unknown."""
    count = 1
    for each in shape:
        number = whole(each)
        if number is None:
            return None
        count *= number
    return count
