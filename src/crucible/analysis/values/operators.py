"""Operators on known values. All are bounded: none can take long or build large results."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from crucible.analysis.values.values import (
    HAS_GPU,
    NO_GPU,
    UNKNOWN,
    Class,
    Either,
    Function,
    Instance,
    Module,
    Name,
    Tensor,
    Unknown,
    Value,
    either,
)

MAX_BITS = 512
MAX_LENGTH = 100_000
_PLAIN = frozenset({bool, int, float, str, bytes, tuple, list, dict, set, frozenset, type(None), complex})
_SIZED = frozenset({str, bytes, tuple, list})
_NUMBERS = frozenset({bool, int, float})
"""Exact types of values: a look-up takes a fraction of the time of `isinstance` with as many types."""

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitOr: operator.or_, ast.BitAnd: operator.and_, ast.BitXor: operator.xor,
}  # fmt: skip
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda one, many: one in many, ast.NotIn: lambda one, many: one not in many,
}  # fmt: skip
_ERRORS = (
    TypeError,
    ValueError,
    ZeroDivisionError,
    OverflowError,
    MemoryError,
    KeyError,
    AttributeError,
    RecursionError,
)


def binary(kind: type, left: Value, right: Value) -> Value:
    """Return the result of a binary operator, UNKNOWN if an operand is unknown or the result would be too large."""
    if isinstance(left, Either) or isinstance(right, Either):
        return _each(lambda one, other: binary(kind, one, other), left, right)
    if type(left) not in _PLAIN or type(right) not in _PLAIN or kind not in _BINARY:
        return UNKNOWN
    if not _small(kind, left, right):
        return UNKNOWN
    if kind is ast.Mod and type(left) is str and type(right) not in _NUMBERS and type(right) is not str:
        return UNKNOWN
    try:
        return _BINARY[kind](left, right)
    except _ERRORS:
        return UNKNOWN


def _small(kind: type, left: Value, right: Value) -> bool:
    """Return whether the result stays within bounds."""
    if kind is ast.Pow:
        return (
            isinstance(left, int | float)
            and isinstance(right, int | float)
            and abs(right) <= 64
            and (isinstance(left, float) or left.bit_length() * max(1, abs(right)) <= MAX_BITS)
        )
    if kind is ast.LShift:
        return isinstance(right, int) and 0 <= right <= MAX_BITS and isinstance(left, int) and left.bit_length() < 64
    sizes = [len(each) for each in (left, right) if type(each) in _SIZED]
    if kind is ast.Mult and sizes:
        times = right if isinstance(right, int) else left
        return isinstance(times, int) and sizes[0] * max(times, 0) <= MAX_LENGTH
    return not (_huge(left) or _huge(right)) and sum(sizes) <= MAX_LENGTH


def _huge(value: Value) -> bool:
    return type(value) is int and value.bit_length() > MAX_BITS


def _each(act: Callable[[Value, Value], Value], left: Value, right: Value) -> Value:
    """Return the results of the function for each pair of options, as one value."""
    lefts = left.options if isinstance(left, Either) else (left,)
    rights = right.options if isinstance(right, Either) else (right,)
    gpu = (isinstance(left, Either) and left.gpu) or (isinstance(right, Either) and right.gpu)
    return either([act(one, other) for one in lefts for other in rights], gpu)


def compare(kind: type, left: Value, right: Value) -> Value:
    """Return the result of a comparison, or UNKNOWN."""
    if kind in (ast.Is, ast.IsNot):
        return _identical(left, right, kind is ast.Is)
    if isinstance(left, Either) or isinstance(right, Either):
        return _compared_options(kind, left, right)
    if isinstance(left, Name) and isinstance(right, Name) and kind in (ast.Eq, ast.NotEq):
        return (left.path == right.path) is (kind is ast.Eq)
    if type(left) not in _PLAIN or type(right) not in _PLAIN:
        return UNKNOWN
    if (
        kind in (ast.In, ast.NotIn)
        and isinstance(right, list | tuple | dict)
        and not _PLAIN.issuperset(map(type, right))
    ):
        return UNKNOWN
    try:
        return bool(_COMPARE[kind](left, right))
    except _ERRORS:
        return UNKNOWN


def _compared_options(kind: type, left: Value, right: Value) -> Value:
    """Return the result of a comparison with several possible values.

    `device == "cuda"`, where the device depends on whether there is a GPU, is itself the question whether there is one.
    """
    found = _each(lambda one, other: compare(kind, one, other), left, right)
    chosen = left if isinstance(left, Either) else right
    if isinstance(found, Either) and chosen.gpu and all(isinstance(each, bool) for each in found.options):
        return HAS_GPU if found.options[0] else NO_GPU
    return found


def _identical(left: Value, right: Value, wanted: bool) -> Value:
    """Return the result of `is` (`wanted`) or `is not`, or UNKNOWN."""
    if isinstance(left, Either):
        answers = {_identical(each, right, wanted) for each in left.options}
        return answers.pop() if len(answers) == 1 else UNKNOWN
    if isinstance(left, Unknown) or isinstance(right, Unknown | Either):
        return UNKNOWN
    if left is None or right is None or isinstance(left, bool) or isinstance(right, bool):
        return (left is right) is wanted
    if isinstance(left, Name) and isinstance(right, Name):
        return (left.path == right.path) is wanted
    return UNKNOWN


def negated(value: Value) -> Value:
    """Return the result of `not`, which turns a check for a GPU around."""
    if isinstance(value, Unknown):
        return {True: NO_GPU, False: HAS_GPU, None: UNKNOWN}[value.gpu]
    if isinstance(value, Name) and value.path == "torch.cuda.device_count()":
        return NO_GPU
    answer = truth(value)
    return UNKNOWN if answer is None else not answer


def unary(kind: type, value: Value) -> Value:
    """Return the result of a unary operator, or UNKNOWN."""
    if kind is ast.Not:
        return negated(value)
    if isinstance(value, Either):
        return either([unary(kind, each) for each in value.options], value.gpu)
    if type(value) not in _NUMBERS:
        return UNKNOWN
    if kind is ast.USub:
        return -value
    if kind is ast.UAdd:
        return +value
    return ~value if isinstance(value, int) else UNKNOWN


def truth(value: Value) -> bool | None:
    """Return whether the value is true, or None if that cannot be decided."""
    if isinstance(value, Either):
        answers = {truth(each) for each in value.options}
        return answers.pop() if len(answers) == 1 else None
    if type(value) in _PLAIN:
        return bool(value)
    if isinstance(value, Unknown | Tensor):
        return None
    if isinstance(value, Name) and value.path.endswith((".TYPE_CHECKING", "()")):
        return None if value.path.endswith("()") else False  # "()": the result of a call, not the function itself
    if isinstance(value, Function | Class | Module | Name):
        return True
    if isinstance(value, Instance):
        return True if not isinstance(value.cls.lookup("__bool__"), Function) else None
    return None
