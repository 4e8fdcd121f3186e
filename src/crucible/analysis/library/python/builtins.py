"""Python's builtin functions, on values that may be unknown."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from typing import Any

from crucible.analysis.interpreter.iteration import UNROLLED, item_like, items_of, length_of
from crucible.analysis.library.call import Asked
from crucible.analysis.library.python.literals import literal
from crucible.analysis.values.operators import MAX_LENGTH, truth
from crucible.analysis.values.values import (
    MISSING,
    UNKNOWN,
    Bound,
    Class,
    Either,
    Function,
    Instance,
    Member,
    Name,
    Tensor,
    Thing,
    Unknown,
    Value,
    either,
    settled,
)

NAMES = frozenset(dir(builtins))


def _range(asked: Asked) -> Value:
    return Thing("range", asked.args)


def _len(asked: Asked) -> Value:
    value = asked.get(0, "obj")
    if isinstance(value, Instance) and isinstance(value.cls.lookup("__len__"), Function):
        return _call(asked, Bound(value, value.cls.lookup("__len__")))
    if isinstance(value, Unknown) and value.gpu:
        return Name("torch.cuda.device_count()")  # the length of a list of GPUs
    length = length_of(value)
    return UNKNOWN if length is None else length


def _converted(convert: Callable[[Any], Any]) -> Callable[[Asked], Value]:
    def act(asked: Asked) -> Value:
        if not asked.args:
            return convert("0") if convert is not str else ""
        value = asked.args[0]
        if isinstance(value, Either):
            return either([_safely(convert, each) for each in value.options], value.gpu)
        return _safely(convert, value)

    return act


def _safely(convert: Callable[[Any], Any], value: Value) -> Value:
    if isinstance(value, Unknown):
        return value
    if not isinstance(value, str | int | float | bool) or (isinstance(value, str) and len(value) > 400):
        return UNKNOWN
    try:
        return convert(value)
    except (TypeError, ValueError, OverflowError):
        return UNKNOWN


def _bool(asked: Asked) -> Value:
    value = asked.get(0, "x", False)
    if isinstance(value, Unknown):
        return value
    answer = truth(value)
    return UNKNOWN if answer is None else answer


def _sequence(asked: Asked) -> Value:
    if not asked.args:
        return () if asked.name == "tuple" else []
    items = items_of(asked.args[0])
    if items is None:
        return asked.args[0]
    return tuple(items) if asked.name == "tuple" else items


def _set(asked: Asked) -> Value:
    if asked.args and isinstance(asked.args[0], str):
        return sorted(set(asked.args[0]))
    items = items_of(asked.args[0]) if asked.args else []
    if items is None or not all(isinstance(each, str | int | float | bool) for each in items):
        return UNKNOWN
    return list(dict.fromkeys(items))


def _dict(asked: Asked) -> Value:
    found: dict[Value, Value] = {}
    first = asked.args[0] if asked.args else {}
    if isinstance(first, dict):
        found.update(first)
    else:
        for pair in items_of(first) or []:
            if isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str | int):
                found[pair[0]] = pair[1]
    return {**found, **asked.kwargs}


def _zip(asked: Asked) -> Value:
    rows = [items_of(each) for each in asked.args]
    if rows and all(row is not None for row in rows):
        return [tuple(each) for each in zip(*(row or [] for row in rows), strict=False)]
    lengths = [length for each in asked.args if (length := length_of(each)) is not None]
    like = tuple(item_like(each) for each in asked.args)
    return Thing(
        "zip", attrs={"like": like, "data": _data(asked.args), **({"length": min(lengths)} if lengths else {})}
    )


def _data(values: tuple[Value, ...]) -> Value:
    return next((each for each in map(settled, values) if isinstance(each, Thing)), None)


def _enumerate(asked: Asked) -> Value:
    source = asked.get(0, "iterable")
    items = items_of(source)
    start = asked.get(1, "start", 0)
    if items is not None and isinstance(start, int):
        return [(number, each) for number, each in enumerate(items, start)]
    length = length_of(source)
    return Thing(
        "enumerate",
        attrs={
            "like": (UNKNOWN, item_like(source)),
            "data": settled(source),
            **({"length": length} if length is not None else {}),
        },
    )


def _reversed(asked: Asked) -> Value:
    items = items_of(asked.get(0, "sequence"))
    return asked.get(0, "sequence") if items is None else items[::-1]


def _sorted(asked: Asked) -> Value:
    items = items_of(asked.get(0, "iterable"))
    if items is None:
        return asked.get(0, "iterable")
    if "key" in asked.kwargs or not items:
        return items
    if all(isinstance(each, int | float) for each in items) or all(isinstance(each, str) for each in items):
        return sorted(items, reverse=asked.kwargs.get("reverse") is True)
    return items


def _extreme(asked: Asked) -> Value:
    values = list(asked.args) if len(asked.args) > 1 else items_of(asked.args[0]) if asked.args else None
    if not values:
        return UNKNOWN
    values = [settled(each) for each in values]
    numbers = [each for each in values if isinstance(each, int | float)]
    pick = max if asked.name == "max" else min
    if len(numbers) == len(values) and numbers:
        return pick(numbers)
    # min() with one known number: a limit that is set by hand holds whatever the rest is.
    return numbers[0] if len(numbers) == 1 and asked.name == "min" else UNKNOWN


def _sum(asked: Asked) -> Value:
    items = items_of(asked.args[0]) if asked.args else None
    if items and isinstance(items[0], Tensor):
        return items[0]
    start = asked.get(1, "start", 0)
    if items is None or not all(isinstance(each, int | float) for each in items) or not isinstance(start, int | float):
        return UNKNOWN
    return sum(items, start)


def _any_all(asked: Asked) -> Value:
    items = items_of(asked.args[0]) if asked.args else None
    answers = [truth(each) for each in items] if items is not None else [None]
    if None in answers:
        return UNKNOWN
    return all(answers) if asked.name == "all" else any(answers)


def _number(act: Callable[..., Any]) -> Callable[[Asked], Value]:
    def run(asked: Asked) -> Value:
        if not asked.args or not all(isinstance(each, int | float) for each in asked.args):
            return UNKNOWN
        try:
            return act(*asked.args[:2])
        except (ValueError, TypeError, ZeroDivisionError, OverflowError):
            return UNKNOWN

    return run


def _getattr(asked: Asked) -> Value:
    owner, name = asked.get(0, "object"), settled(asked.get(1, "name"))
    if not isinstance(name, str):
        return UNKNOWN
    found = asked.machine.attribute(owner, name)
    if len(asked.args) > 2 and isinstance(found, Member) and isinstance(owner, Instance | Thing):
        return asked.args[2]
    return found


def _setattr(asked: Asked) -> Value:
    if len(asked.args) == 3 and isinstance(asked.args[1], str):
        asked.machine.set_attribute(asked.args[0], asked.args[1], asked.args[2])
    return None


def _hasattr(asked: Asked) -> Value:
    owner, name = asked.get(0, "object"), asked.get(1, "name")
    if isinstance(owner, Instance) and isinstance(name, str):
        if name in owner.attrs or owner.cls.lookup(name) is not MISSING:
            return True
        return UNKNOWN if owner.bases else False
    if name == "scaled_dot_product_attention":
        return True
    return UNKNOWN


def _isinstance(asked: Asked) -> Value:
    value, kinds = asked.get(0, "object"), asked.get(1, "class")
    kinds = kinds if isinstance(kinds, tuple | list) else (kinds,)
    answers = [_is_a(value, kind) for kind in kinds]
    if True in answers:
        return True
    return UNKNOWN if None in answers else False


def _is_a(value: Value, kind: Value) -> bool | None:
    """Return whether the value is of this type, or None if that is unknown."""
    if isinstance(value, Unknown | Either | Member) or isinstance(kind, Unknown):
        return None
    if isinstance(kind, Name) and kind.path.startswith("builtins."):
        known = getattr(builtins, kind.path[9:], None)
        plain = isinstance(value, str | int | float | bool | list | tuple | dict | type(None))
        return isinstance(value, known) if plain and isinstance(known, type) else None if not plain else False
    if isinstance(value, Thing) and isinstance(kind, Name):
        return value.path == kind.path or (
            (kind.path == "torch.nn.Module" and value.path.startswith("torch.nn.")) or None
        )
    if isinstance(value, Instance) and isinstance(kind, Class):
        return _derives(value.cls, kind)
    if isinstance(value, Instance) and isinstance(kind, Name):
        return kind.path in value.bases
    if isinstance(value, Tensor) and isinstance(kind, Name):
        return kind.path in ("torch.Tensor",)
    return False


def _derives(cls: Class, kind: Class) -> bool:
    return cls is kind or any(_derives(base, kind) for base in cls.bases if isinstance(base, Class))


def _super(asked: Asked) -> Value:
    """Return an object with the bases of the class in which the surrounding method is written."""
    owner = asked.scope.lookup("self")
    written = asked.scope.lookup("__class__")
    if not isinstance(owner, Instance) or not isinstance(written, Class):
        return UNKNOWN
    rest = Class(f"super of {written.name}", written.where, written.bases, {})
    return Instance(rest, owner.where, owner.attrs)


def _map(asked: Asked) -> Value:
    items = items_of(asked.args[1]) if len(asked.args) == 2 else None
    if items is None or len(items) > UNROLLED:
        return (
            Thing("list", attrs={"like": _call(asked, asked.args[0], item_like(asked.args[1]))})
            if len(asked.args) == 2
            else UNKNOWN
        )
    return [_call(asked, asked.args[0], each) for each in items]


def _call(asked: Asked, function: Value, *args: Value) -> Value:
    return asked.machine.call(function, args, {}, asked.scope)


def _globals(asked: Asked) -> Value:
    return asked.scope.top.names


def _locals(asked: Asked) -> Value:
    return asked.scope.names


def _vars(asked: Asked) -> Value:
    value = asked.get(0, "object")
    return value.attrs if isinstance(value, Instance | Thing) else asked.scope.names


def _exec(asked: Asked) -> Value:
    """Follow a string of code like the code around it; nothing is run."""
    code = asked.get(0, "source")
    if isinstance(code, str) and len(code) <= MAX_LENGTH:
        try:
            asked.machine.execute(ast.parse(code).body, asked.scope)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    elif isinstance(code, Unknown | Thing | Member):
        _flags_over_globals(asked)
    return None


def _flags_over_globals(asked: Asked) -> None:
    """Assign `--name=value` flags to globals, as `exec(open("configurator.py").read())` usually does."""
    names = asked.scope.top.names
    for argument in asked.machine.sources.arguments:
        name, given, value = argument.removeprefix("--").partition("=")
        if given and name in names:
            names[name] = literal(value)
            asked.machine.note_assigned(name, names[name])


def _type(asked: Asked) -> Value:
    value = asked.get(0, "object")
    if isinstance(value, Instance):
        return value.cls
    if isinstance(value, Thing):
        return Name(value.path)
    plain = isinstance(value, str | int | float | bool | list | tuple | dict)
    return Name(f"builtins.{type(value).__name__}") if plain else UNKNOWN


def _next(asked: Asked) -> Value:
    return item_like(asked.get(0, "iterator"))


def _iter(asked: Asked) -> Value:
    return asked.get(0, "object")


_ACTS: dict[str, Callable[[Asked], Value]] = {
    "range": _range, "len": _len, "int": _converted(int), "float": _converted(float), "str": _converted(str),
    "bool": _bool, "list": _sequence, "tuple": _sequence, "set": _set, "frozenset": _set, "dict": _dict, "zip": _zip,
    "enumerate": _enumerate, "reversed": _reversed, "sorted": _sorted, "max": _extreme, "min": _extreme, "sum": _sum,
    "any": _any_all, "all": _any_all, "abs": _number(abs), "round": _number(round),
    "pow": _number(lambda a, b: a**b if abs(b) < 64 and abs(a) < 1e6 else None),
    "getattr": _getattr, "setattr": _setattr, "hasattr": _hasattr, "isinstance": _isinstance, "super": _super,
    "map": _map, "globals": _globals, "locals": _locals, "vars": _vars, "exec": _exec, "type": _type, "next": _next,
    "iter": _iter, "eval": lambda asked: UNKNOWN, "print": lambda asked: None, "id": lambda asked: UNKNOWN,
}  # fmt: skip
HANDLERS = {f"builtins.{name}": act for name, act in _ACTS.items()}
