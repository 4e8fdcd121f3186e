"""Values: what the interpreter knows about a variable. Plain Python values stand for themselves.

Lists and dicts are the interpreter's own; nothing in here comes from running the program. Classes with many instances
are not frozen: that would make them four times as slow to create.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crucible.analysis.values.scope import Scope

Value = Any
"""A constant, a list or dict of values, or one of the classes of this file."""

Where = tuple[str, int]
"""File and line."""

NOWHERE: Where = ("", 0)
MAX_OPTIONS = 4


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nothing is known. `gpu`: as a condition it is true if there is a GPU (True), or if there is none (False)."""

    gpu: bool | None = None


UNKNOWN = Unknown()

PRINTED = frozenset({str, int, float, bool})
"""Types that print the same in a text, and that may be keys of dicts."""
HAS_GPU = Unknown(True)
GPUS = Unknown(True)
"""The list of GPUs, recognised by identity. As a condition it is like HAS_GPU."""
NO_GPU = Unknown(False)


@dataclass(frozen=True, eq=False, slots=True)
class Either:
    """One of a few values. `gpu`: the first is the value if there is a GPU."""

    options: tuple[Value, ...]
    gpu: bool = False


@dataclass(frozen=True, slots=True)
class Name:
    """A function, class or module of a library, by its full path: `torch.nn.Linear`."""

    path: str


@lru_cache(maxsize=8192)
def named(path: str) -> Name:
    """Return the name for a path, the same object each time: programs use the same names again and again."""
    return Name(path)


class Thing:
    """The result of a library call: an object of `path` with the arguments it was made with.

    A plain class: a dataclass with default factories takes a third longer to create.
    """

    __slots__ = ("args", "attrs", "children", "kwargs", "path", "where")

    def __init__(
        self,
        path: str,
        args: tuple[Value, ...] = (),
        kwargs: dict[str, Value] | None = None,
        where: Where = NOWHERE,
        attrs: dict[str, Value] | None = None,
        children: list[Value] | None = None,
    ) -> None:
        self.path = path
        self.args = args
        self.kwargs = {} if kwargs is None else kwargs
        self.where = where
        self.attrs = {} if attrs is None else attrs
        self.children = [] if children is None else children

    def argument(self, position: int, name: str, default: Value = None) -> Value:
        """Return the argument of this name or position."""
        if name in self.kwargs:
            return self.kwargs[name]
        return self.args[position] if 0 <= position < len(self.args) else default


@dataclass(eq=False, slots=True)
class Member:
    """An attribute that only its owner knows, usually a method."""

    owner: Value
    name: str


@dataclass(eq=False, slots=True)
class Function:
    """A function or lambda of the program, with the scope around it."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: Scope
    name: str
    defaults: dict[str, Value] = field(default_factory=dict)
    decorators: tuple[Value, ...] = ()
    owner: Class | None = None


@dataclass(eq=False, slots=True)
class Bound:
    """A method with the object it belongs to."""

    owner: Value
    function: Function


@dataclass(eq=False, slots=True)
class Class:
    """A class of the program."""

    name: str
    where: Where
    bases: tuple[Value, ...]
    names: dict[str, Value]
    fields: tuple[str, ...] = ()
    """Annotated names in order, the fields of a dataclass or the like."""

    dataclass: bool = False
    outside: tuple[str, ...] = field(init=False)
    """Paths of the library classes that it derives from. Computed once, since bases do not change."""

    def __post_init__(self) -> None:
        self.outside = tuple(self._paths(0))

    def lookup(self, name: str, depth: int = 0) -> Value:
        """Return the attribute of the class or of its bases in the program, or MISSING."""
        if name in self.names:
            return self.names[name]
        for base in self.bases if depth < 20 else ():
            if isinstance(base, Class):
                found = base.lookup(name, depth + 1)
                if found is not MISSING:
                    return found
        return MISSING

    def _paths(self, depth: int) -> list[str]:
        found: list[str] = []
        for base in self.bases if depth < 20 else ():
            if isinstance(base, Class):
                found += base._paths(depth + 1)
            elif isinstance(base, Name):
                found.append(base.path)
        return found

    def all_fields(self, depth: int = 0) -> tuple[str, ...]:
        """Return the fields with those of its bases, bases first."""
        inherited = [
            name for base in self.bases if isinstance(base, Class) and depth < 20 for name in base.all_fields(depth + 1)
        ]
        return tuple(dict.fromkeys((*inherited, *self.fields)))

    def is_dataclass(self, depth: int = 0) -> bool:
        """Return whether it, or a base in the program, is a dataclass or the like."""
        inherited = [base for base in self.bases if isinstance(base, Class)] if depth < 20 else []
        return self.dataclass or (bool(inherited) and any(base.is_dataclass(depth + 1) for base in inherited))


@dataclass(eq=False, slots=True)
class Instance:
    """An object of a class of the program."""

    cls: Class
    where: Where = NOWHERE
    attrs: dict[str, Value] = field(default_factory=dict)

    @property
    def bases(self) -> tuple[str, ...]:
        return self.cls.outside


@dataclass(eq=False, slots=True)
class Module:
    """A file of the program, as `import` gives it."""

    name: str
    scope: Scope


@dataclass(eq=False, slots=True)
class Store:
    """The memory of a tensor and its views. `weight`: it holds a parameter."""

    bytes: float
    weight: bool = False


@dataclass(eq=False, slots=True)
class Tensor:
    """`shape` is None where even the number of dimensions is unknown; a dimension is an int or UNKNOWN."""

    shape: tuple[Value, ...] | None
    kind: str = "float32"
    grad: bool = False
    store: Store | None = None
    library: str = "torch"
    strided: bool = False
    """A view whose items lie in another order than its shape suggests."""

    origin: tuple[Thing, tuple[Tensor, ...]] | None = None
    """The layer that made it with its inputs, for networks that are built by calling layers."""

    count: int | None = None
    """The number of items if it is already known; use `items` instead."""

    @property
    def items(self) -> int | None:
        """The number of items, or None if a dimension is unknown."""
        return counted(self.shape) if self.count is None else self.count

    @property
    def width(self) -> float:
        """Bytes per item."""
        return WIDTHS.get(self.kind, 4)


WIDTHS = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "half": 2, "double": 8, "float": 4, "long": 8,
    "int64": 8, "int32": 4, "int": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16,
}  # fmt: skip


def counted(shape: tuple[Value, ...] | None) -> int | None:
    """Return the number of items of this shape, or None if a dimension is unknown."""
    if shape is None:
        return None
    count = 1
    for each in shape:
        if type(each) is not int:
            return None
        count *= each if each > 0 else 0
    return count


class Missing:
    """No such attribute."""


MISSING = Missing()


def either(values: Iterable[Value], gpu: bool = False) -> Value:
    """Return the values as one: the value itself if all are the same, UNKNOWN if there are too many."""
    flat: list[Value] = []
    for value in values:
        for each in value.options if isinstance(value, Either) else (value,):
            if not flat or not any(same(each, known) for known in flat):
                flat.append(each)
    if len(flat) == 1:
        return flat[0]
    return Either(tuple(flat), gpu) if 0 < len(flat) <= MAX_OPTIONS else UNKNOWN


_SIMPLE = frozenset({bool, int, float, str, type(None), Name, Unknown})


def same(one: Value, other: Value) -> bool:
    """Return whether two values are certainly the same."""
    if one is other:
        return True
    kind = type(one)
    return kind is type(other) and kind in _SIMPLE and bool(one == other)


def settled(value: Value) -> Value:
    """Return the first known value of several possible ones, for when one is needed."""
    if type(value) is Either:
        return next((each for each in value.options if each is not None and not isinstance(each, Unknown)), UNKNOWN)
    return value


def worded(value: Value) -> str:
    """Return the text of a string or number, else an empty one: a list may contain itself, or be endless."""
    found = settled(value)
    return str(found) if isinstance(found, str | int | float) else ""


def whole(value: Value) -> int | None:
    """Return the value as an integer, or None if it is not a number or too large."""
    if type(value) is int:
        return value if abs(value) <= 1e18 else None
    found = settled(value)
    if type(found) is not int and type(found) is not float:
        return None
    if found != found or abs(found) > 1e18:
        return None
    return int(found)


NETWORKS = frozenset(
    {
        "torch.nn.Module", "lightning.LightningModule", "lightning.pytorch.LightningModule", "torch.nn.Sequential",
        "keras.Model", "keras.layers.Layer", "keras.Layer", "keras.models.Model", "keras.Sequential",
        "flax.linen.Module",
        "tensorflow.Module", "flax.nnx.Module", "equinox.Module", "transformers.PreTrainedModel",
    }
)  # fmt: skip


def is_network(value: Value) -> bool:
    """Return whether the value is an object of a program's class that derives from a framework's module."""
    return type(value) is Instance and not NETWORKS.isdisjoint(value.bases)
