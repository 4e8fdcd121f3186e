"""Values: what the reader knows about a variable. Plain Python values stand for themselves.

Lists and dicts are the reader's own; nothing in here comes from running the program. What is made in numbers is not
frozen: to make a frozen object takes Python four times as long.
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
    """Nothing is known. `gpu`: its truth follows from whether there is a GPU (True), or is none (False)."""

    gpu: bool | None = None


UNKNOWN = Unknown()

PRINTED = frozenset({str, int, float, bool})
"""Values that read the same in a text, and that are the keys of dicts."""
HAS_GPU = Unknown(True)
GPUS = Unknown(True)
"""A list of the GPUs there are, known by being this object. As a condition it is like the one above."""
NO_GPU = Unknown(False)


@dataclass(frozen=True, eq=False, slots=True)
class Either:
    """One of a few values. `gpu`: the first is the one taken where there is a GPU."""

    options: tuple[Value, ...]
    gpu: bool = False


@dataclass(frozen=True, slots=True)
class Name:
    """Something of a library, by its full path: `torch.nn.Linear`."""

    path: str


@lru_cache(maxsize=8192)
def named(path: str) -> Name:
    """One object for each path: a program says the same names over and over."""
    return Name(path)


class Thing:
    """What a call of a library gave: an object of `path`, made with these arguments.

    Written out: a dataclass calls `dict` and `list` for what is not given, and takes a third longer for it.
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

    def argument(self, place: int, name: str, default: Value = None) -> Value:
        if name in self.kwargs:
            return self.kwargs[name]
        return self.args[place] if 0 <= place < len(self.args) else default


@dataclass(eq=False, slots=True)
class Member:
    """An attribute that only its owner knows: a method, mostly."""

    owner: Value
    name: str


@dataclass(eq=False, slots=True)
class Function:
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: Scope
    name: str
    defaults: dict[str, Value] = field(default_factory=dict)
    decorators: tuple[Value, ...] = ()
    owner: Class | None = None


@dataclass(eq=False, slots=True)
class Bound:
    """A method together with what it belongs to."""

    owner: Value
    function: Function


@dataclass(eq=False, slots=True)
class Class:
    name: str
    where: Where
    bases: tuple[Value, ...]
    names: dict[str, Value]
    fields: tuple[str, ...] = ()
    """Of a dataclass or the like: annotated names, in order."""

    dataclass: bool = False
    outside: tuple[str, ...] = field(init=False)
    """The paths of the library classes it derives from; its bases stay what they are, so they are told once."""

    def __post_init__(self) -> None:
        self.outside = tuple(self._paths(0))

    def lookup(self, name: str, depth: int = 0) -> Value:
        """The attribute of the class or its bases, MISSING if it is none of ours."""
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
        inherited = [
            name for base in self.bases if isinstance(base, Class) and depth < 20 for name in base.all_fields(depth + 1)
        ]
        return tuple(dict.fromkeys((*inherited, *self.fields)))

    def is_dataclass(self, depth: int = 0) -> bool:
        inherited = [base for base in self.bases if isinstance(base, Class)] if depth < 20 else []
        return self.dataclass or (bool(inherited) and any(base.is_dataclass(depth + 1) for base in inherited))


@dataclass(eq=False, slots=True)
class Instance:
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
    """The memory under a tensor and its views."""

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
    """A view whose items lie in another order than its shape says."""

    origin: tuple[Thing, tuple[Tensor, ...]] | None = None
    """The layer that gave it, and what went in; for networks that are put together by calling layers."""

    count: int | None = None
    """Its items where whoever made it has counted them; `items` is the one to ask."""

    @property
    def items(self) -> int | None:
        """None where a dimension is unknown."""
        return counted(self.shape) if self.count is None else self.count

    @property
    def width(self) -> float:
        """Bytes of an item."""
        return WIDTHS.get(self.kind, 4)


WIDTHS = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "half": 2, "double": 8, "float": 4, "long": 8,
    "int64": 8, "int32": 4, "int": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16,
}  # fmt: skip


def counted(shape: tuple[Value, ...] | None) -> int | None:
    """The items of a tensor of this shape, None where a dimension is unknown."""
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
    """The values as one: itself where there is only one, unknown where there are too many."""
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
    if one is other:
        return True
    kind = type(one)
    return kind is type(other) and kind in _SIMPLE and bool(one == other)


def settled(value: Value) -> Value:
    """The value to go by when one is wanted: the first of a few that is known."""
    if type(value) is Either:
        return next((each for each in value.options if each is not None and not isinstance(each, Unknown)), UNKNOWN)
    return value


def worded(value: Value) -> str:
    """The value in words; nothing where it is no text or number: a list may hold itself, or be endless."""
    found = settled(value)
    return str(found) if isinstance(found, str | int | float) else ""


def whole(value: Value) -> int | None:
    """The value as a count, if it is one."""
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
    """Tell whether it is an object of a class of the program that derives from a framework's module."""
    return type(value) is Instance and not NETWORKS.isdisjoint(value.bases)
