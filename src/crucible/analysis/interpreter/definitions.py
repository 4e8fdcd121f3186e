"""Definitions: functions and classes of the program become values."""

from __future__ import annotations

import ast

from crucible.analysis.interpreter.functions import defaults_of
from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.library import command_made_by
from crucible.analysis.values.scope import Scope
from crucible.analysis.values.values import Class, Function, Name, Thing, Value

_DATACLASSES = ("dataclass", "define", "frozen", "attrs", "s", "chz", "struct.dataclass")
_FIELD_BASES = ("BaseModel", "NamedTuple", "BaseSettings", "Struct", "TypedDict", "Module")
_FIELDED = frozenset(
    {"flax.linen.Module", "equinox.Module", "pydantic.BaseModel", "typing.NamedTuple", "flax.struct.PyTreeNode"}
)


def define_function(
    machine: Machine, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope, owner: Class | None = None
) -> Value:
    """Return the function, or the command that decorators make of it. Decorators are noted as calls."""
    decorators = _evaluated(machine, node.decorator_list, scope)
    plain = tuple(map(_undressed, decorators))
    function = Function(node, scope, node.name, defaults_of(machine, node.args, scope), plain, owner)
    machine.functions.append(function)
    result: Value = function
    for decorator in reversed(decorators):
        if isinstance(decorator, Function):
            continue  # a wrapper of the program's own: only the function inside it matters
        machine.line = (scope.file, node.lineno)
        path = _path(decorator)
        if path.startswith(("click.", "typer.", "hydra.", "absl.")):
            result = command_made_by(machine, path, decorator, result)
        elif path:
            machine.note_call(f"@{path}", (result,), {}, decorator, None)
    return result


def _evaluated(machine: Machine, nodes: list[ast.expr], scope: Scope) -> list[Value]:
    return [machine.evaluate(each, scope) for each in nodes] if nodes else []


def _undressed(decorator: Value) -> Value:
    """Return `@decorator` for `@decorator(options)`."""
    return Name(decorator.path) if isinstance(decorator, Thing) else decorator


def _path(decorator: Value) -> str:
    return decorator.path if isinstance(decorator, Name | Thing) else ""


def define_class(machine: Machine, node: ast.ClassDef, scope: Scope) -> Class:
    """Return the class, with its body executed."""
    bases = tuple(_evaluated(machine, node.bases, scope))
    for base in bases:
        if isinstance(base, Name):
            machine.line = (scope.file, node.lineno)
            machine.note_call(f"class {base.path}", (), {}, None, None)
    decorators = _evaluated(machine, node.decorator_list, scope)
    inner = Scope(scope.file, scope, scope.top)
    made = Class(node.name, (scope.file, node.lineno), bases, inner.names)
    rest: list[ast.stmt] = []
    for statement in node.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            # Methods do not see the names of their class, only those of the enclosing scope.
            function = define_function(machine, statement, scope, made)
            inner.names[statement.name] = function
        else:
            rest.append(statement)
            machine.execute([statement], inner)
    annotated = [each.target for each in rest if isinstance(each, ast.AnnAssign)]
    made.fields = tuple([target.id for target in annotated if isinstance(target, ast.Name)])
    made.dataclass = any(map(_makes_dataclass, decorators)) or any(map(_has_fields, made.outside))
    return made


def _makes_dataclass(decorator: Value) -> bool:
    return _path(decorator).rpartition(".")[2] in _DATACLASSES


def _has_fields(path: str) -> bool:
    return path in _FIELDED or path.rpartition(".")[2] in _FIELD_BASES[:5]
