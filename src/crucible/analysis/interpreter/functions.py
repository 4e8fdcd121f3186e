"""Functions of the program: binds their arguments, follows their bodies, and returns their results."""

from __future__ import annotations

import ast

from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.values.scope import Scope
from crucible.analysis.values.values import (
    MISSING,
    UNKNOWN,
    Bound,
    Class,
    Function,
    Instance,
    Thing,
    Value,
    either,
)

MAX_CALLS_DEEP = 24
MAX_AGAIN = 2
"""How often a function may be active inside itself."""


def defaults_of(machine: Machine, arguments: ast.arguments, scope: Scope) -> dict[str, Value]:
    """Return the values of the parameters' defaults, by name."""
    found: dict[str, Value] = {}
    if arguments.defaults:
        places = [*arguments.posonlyargs, *arguments.args]
        for argument, default in zip(reversed(places), reversed(arguments.defaults), strict=False):
            found[argument.arg] = machine.evaluate(default, scope)
    if arguments.kwonlyargs:
        for argument, keyword_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if keyword_default is not None:
                found[argument.arg] = machine.evaluate(keyword_default, scope)
    return found


def follow(machine: Machine, function: Function, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
    """Return the result of a function whose body is followed; UNKNOWN if calls are nested too deeply."""
    mark = id(function.node)
    if len(machine.active) > MAX_CALLS_DEEP or machine.active.count(mark) > MAX_AGAIN:
        return UNKNOWN
    machine.visited.add(mark)
    scope = Scope(function.scope.file, function.scope, function.scope.top)
    bind(function, scope, args, kwargs)
    machine.active.append(mark)
    depth, machine.depth = machine.depth, max(0, machine.depth - 40)
    try:
        if isinstance(function.node, ast.Lambda):
            return machine.evaluate(function.node.body, scope)
        machine.verbs.execute(machine, function.node.body, scope)
    finally:
        machine.depth = depth
        machine.active.pop()
    return _given_back(scope)


def _given_back(scope: Scope) -> Value:
    """Return what the function returned or yielded; several returns become one of several values."""
    yields = scope.names.get("\0yields", MISSING)
    if isinstance(yields, list):
        return Thing("generator", attrs={"like": yields[0] if yields else UNKNOWN})
    returns = scope.names.get("\0returns", MISSING)
    if not isinstance(returns, list):
        return None
    meant = [each for each in returns if each is not None]
    return either(meant or returns)


def bind(function: Function, scope: Scope, args: tuple[Value, ...], kwargs: dict[str, Value]) -> None:
    """Bind the arguments to the parameters in the scope."""
    arguments, names = function.node.args, scope.names
    places = [*arguments.posonlyargs, *arguments.args] if arguments.posonlyargs else arguments.args
    rest = dict(kwargs)
    given = len(args)
    for place, each in enumerate(places):
        name = each.arg
        if place < given:
            names[name] = args[place]
        elif name in rest:
            names[name] = rest.pop(name)
        else:
            names[name] = function.defaults.get(name, UNKNOWN)
    for each in arguments.kwonlyargs:
        names[each.arg] = rest.pop(each.arg, function.defaults.get(each.arg, UNKNOWN))
    if arguments.vararg:
        names[arguments.vararg.arg] = args[len(places) :]
    if arguments.kwarg:
        names[arguments.kwarg.arg] = rest
    if function.owner is not None:
        names.setdefault("__class__", function.owner)


def guessed_arguments(machine: Machine, function: Function) -> dict[str, Value]:
    """Return arguments for a function that is never called: objects for parameters annotated with a dataclass."""
    found: dict[str, Value] = {}
    for each in (*function.node.args.posonlyargs, *function.node.args.args, *function.node.args.kwonlyargs):
        if each.arg in function.defaults or each.annotation is None:
            continue
        declared = machine.evaluate(each.annotation, function.scope)
        if isinstance(declared, Class) and declared.is_dataclass():
            found[each.arg] = machine.call(declared, (), {}, function.scope)
    return found


def method(owner: Value, name: str) -> Value:
    """Return a method of an object of the program's own class, or None."""
    if isinstance(owner, Instance):
        found = owner.cls.lookup(name)
        if isinstance(found, Function):
            return Bound(owner, found)
    return None
