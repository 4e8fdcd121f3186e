"""Calls: the program's own functions and classes are followed, calls of libraries are noted."""

from __future__ import annotations

from crucible.analysis.interpreter.functions import follow, method
from crucible.analysis.interpreter.machine import Exhausted, Machine
from crucible.analysis.library import called_library, called_member, called_thing
from crucible.analysis.library.keras import own_layers
from crucible.analysis.values.scope import Scope
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
    Thing,
    Value,
    either,
    is_network,
)

Kwargs = dict[str, Value]


def call(machine: Machine, function: Value, args: tuple[Value, ...], kwargs: Kwargs, scope: Scope) -> Value:
    """Return the result of a call, which counts as a step. Raises Exhausted when the limit is reached."""
    machine.steps = steps = machine.steps + 1
    if steps > machine.limit:
        raise Exhausted
    return called(machine, function, args, kwargs, scope)


def called(machine: Machine, function: Value, args: tuple[Value, ...], kwargs: Kwargs, scope: Scope) -> Value:
    """Return the result of a call whose step the caller has counted."""
    kind = type(function)
    if kind is Name:
        return called_library(machine, function.path, args, kwargs, scope)
    if kind is Member:
        return called_member(machine, function, args, kwargs, scope)
    if kind is Thing:
        return called_thing(machine, function, args, kwargs)
    if kind is Bound:
        return follow(machine, function.function, (function.owner, *args), kwargs)
    if kind is Function:
        return follow(machine, function, args, kwargs)
    if kind is Class:
        return make(machine, function, args, kwargs)
    if kind is Instance:
        return _called_object(machine, function, args, kwargs)
    if kind is Either:
        return _called_options(machine, function, args, kwargs, scope)
    return UNKNOWN


def _called_options(machine: Machine, function: Either, args: tuple[Value, ...], kwargs: Kwargs, scope: Scope) -> Value:
    """Return the results of calling each option, as one value.

    A separate function: a comprehension turns the variables it uses into cells, at every call of its function.
    """
    return either([call(machine, each, args, kwargs, scope) for each in function.options[:2]], function.gpu)


def make(machine: Machine, cls: Class, args: tuple[Value, ...], kwargs: Kwargs) -> Value:
    """Return a new object of a class of the program."""
    made = Instance(cls, machine.line)
    if len(machine.facts.made) < 2_000:
        machine.facts.made.append(made)
        if not machine.situation().certain:
            machine.facts.doubtful.add(id(made))
    for name in cls.all_fields() if cls.is_dataclass() else ():
        default = cls.lookup(name)
        if default is not MISSING:
            made.attrs[name] = _field_default(machine, default)
    begin = cls.lookup("__init__")
    if isinstance(begin, Function):
        follow(machine, begin, (made, *args), kwargs)
        return made
    if cls.is_dataclass():
        made.attrs.update(zip(cls.all_fields(), args, strict=False))
    made.attrs.update(kwargs)
    for name in ("__post_init__", "setup"):
        after = cls.lookup(name)
        if isinstance(after, Function) and cls.is_dataclass():
            follow(machine, after, (made,), {})
    return made


def _field_default(machine: Machine, default: Value) -> Value:
    """Return the default of a dataclass field declared as `field(default=...)`, `Field(...)` or the like."""
    if isinstance(default, Thing) and default.path.rpartition(".")[2] in ("field", "Field", "ib"):
        if "default_factory" in default.kwargs:
            factory = default.kwargs["default_factory"]
            return call(machine, factory, (), {}, machine.nowhere())
        return default.argument(0, "default", UNKNOWN)
    return default


def _called_object(machine: Machine, owner: Instance, args: tuple[Value, ...], kwargs: Kwargs) -> Value:
    """Return the result of calling an object of the program: of its `forward`, `call` or `__call__`."""
    names = ("forward", "call", "__call__") if is_network(owner) else ("__call__",)
    own_layers.built(machine, owner, args)
    for name in names:
        found = method(owner, name)
        if found is not None:
            return follow(machine, found.function, (owner, *args), kwargs)
    bases = owner.bases
    if bases:
        return called_member(machine, Member(owner, "__call__"), args, kwargs, machine.nowhere())
    return UNKNOWN
