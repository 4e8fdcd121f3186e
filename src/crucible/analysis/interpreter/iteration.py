"""Iteration: the items a loop goes over if they are known, and what one looks like if not."""

from __future__ import annotations

from crucible.analysis.values.values import UNKNOWN, Either, Member, Tensor, Thing, Value, settled, whole

PART = "part"
"""The path of an object that is some part of a model known only by name; its attribute `of` is the model."""

UNROLLED = 512
"""Most rounds of a loop to follow one by one."""


_SIZED = frozenset({list, tuple, dict, str})
_WHOLE = frozenset({int, bool})


def items_of(value: Value) -> list[Value] | None:
    """Return the items in order, or None if they are not known one by one."""
    kind = type(value)
    if kind is Thing:
        if value.path == "range":
            return _range(value)
        return list(value.children) if value.children else None
    if kind is list or kind is tuple or kind is dict:
        return list(value)
    if kind is str:
        return list(value) if len(value) <= UNROLLED else None
    return _rows(value) if kind is Tensor else None


def _rows(value: Tensor) -> list[Value] | None:
    """Return views of a tensor along its first dimension, or None if they are unknown or many."""
    if not value.shape or not isinstance(value.shape[0], int) or value.shape[0] > 16:
        return None
    return [Tensor(value.shape[1:], value.kind, value.grad, value.store) for _ in range(value.shape[0])]


def _range(value: Thing) -> list[Value] | None:
    numbers = value.args
    if not _WHOLE.issuperset(map(type, numbers)) or not numbers or (len(numbers) == 3 and numbers[2] == 0):
        return None
    first = list(range(*numbers)[: UNROLLED + 1])  # len() of a range may overflow
    return first if len(first) <= UNROLLED else None


def length_of(value: Value) -> int | None:
    """Return the number of items, even if they are not known one by one; None if unknown."""
    value = settled(value)
    kind = type(value)
    if kind in _SIZED:
        return len(value)
    if kind is Tensor:
        return whole(value.shape[0]) if value.shape else None
    if kind is not Thing:
        return None
    if value.path == "range":
        return _range_length([whole(each) for each in value.args])
    if "length" in value.attrs:
        return whole(value.attrs["length"])
    return len(value.children) if value.children else None


def _range_length(counts: list[int | None]) -> int | None:
    if not counts or len(counts) > 3:
        return None
    if len(counts) == 2 and counts[0] is None and counts[1] is not None:
        return counts[1]  # an unknown start, as of a resumed run, counts as 0
    if None in counts or (len(counts) == 3 and counts[2] == 0):
        return None
    start, stop, step = (
        (0, counts[0], 1) if len(counts) == 1 else (counts[0], counts[1], counts[2] if len(counts) == 3 else 1)
    )
    assert start is not None
    assert stop is not None
    assert step is not None
    return max(0, -(-(stop - start) // step))


def item_like(value: Value) -> Value:
    """Return what one item looks like, for a value whose items are not all known."""
    value = settled(value)
    if isinstance(value, Thing):
        return value.attrs["like"] if "like" in value.attrs else _weight_like(value)
    if isinstance(value, Member) and value.name == "layers" and isinstance(value.owner, Thing):
        return Thing(PART, attrs={"of": value.owner})
    if isinstance(value, Tensor) and value.shape:
        return Tensor(value.shape[1:], value.kind, value.grad, value.store)
    if isinstance(value, Either):
        return UNKNOWN
    found = items_of(value)
    return found[0] if found else UNKNOWN


def _weight_like(value: Thing) -> Value:
    """Return one of `model.parameters()` of a model whose weights are not known one by one."""
    owner = value.attrs.get("of")
    if not isinstance(owner, Thing) or owner.children or not value.path.endswith((".parameters", ".named_parameters")):
        return UNKNOWN
    part = Thing(PART, attrs={"of": owner, "whole": value.attrs.get("whole", True)})
    return (UNKNOWN, part) if value.path.endswith(".named_parameters") else part
