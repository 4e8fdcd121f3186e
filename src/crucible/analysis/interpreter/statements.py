"""Statements: each is executed once; under an undecided condition, both branches are."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from crucible.analysis.interpreter.branches import both_ways, perhaps
from crucible.analysis.interpreter.calls import call
from crucible.analysis.interpreter.definitions import define_class, define_function
from crucible.analysis.interpreter.expressions import evaluate
from crucible.analysis.interpreter.flag_branches import note_switched_off
from crucible.analysis.interpreter.imports import import_from, import_plain
from crucible.analysis.interpreter.iteration import PART, items_of
from crucible.analysis.interpreter.loops import for_loop, while_loop
from crucible.analysis.interpreter.machine import BREAK, CONTINUE, NEXT, RAISE, RETURN, Exhausted, Flow, Machine
from crucible.analysis.interpreter.try_blocks import goes_another_way
from crucible.analysis.interpreter.with_statements import entered
from crucible.analysis.library.torch.models import HEADS, LAST
from crucible.analysis.source.trees import nodes
from crucible.analysis.values.facts import Guard
from crucible.analysis.values.operators import binary, truth
from crucible.analysis.values.scope import Scope
from crucible.analysis.values.tensors import tensor_arithmetic
from crucible.analysis.values.values import (
    UNKNOWN,
    Bound,
    Class,
    Function,
    Instance,
    Member,
    Module,
    Name,
    Tensor,
    Thing,
    Unknown,
    Value,
    either,
)


def execute(machine: Machine, body: Sequence[ast.stmt], scope: Scope) -> Flow:
    """Execute the statements, and return how the block was left. Each statement counts as a step."""
    guards = machine.guards
    try:
        for statement in body:
            machine.steps = steps = machine.steps + 1
            if steps > machine.limit:
                raise Exhausted
            act = _ACTS.get(type(statement))
            if act is None:
                continue
            flow = act(machine, statement, scope)
            if flow is NEXT:
                continue
            if not isinstance(flow, Guard):
                return flow
            machine.guards = (*machine.guards, flow)
    finally:
        machine.guards = guards
    return NEXT


def _expression(machine: Machine, node: ast.Expr, scope: Scope) -> Flow:
    value = node.value
    if type(value) is ast.Constant:
        return NEXT
    evaluate(machine, value, scope)
    return RAISE if type(value) is ast.Call and _exits(value.func) else NEXT


def _exits(function: ast.expr) -> bool:
    """Return whether the called function ends the program."""
    if isinstance(function, ast.Attribute):
        if function.attr not in ("exit", "_exit") or not isinstance(function.value, ast.Name):
            return False
        return (function.value.id, function.attr) in (("sys", "exit"), ("os", "_exit"))
    return isinstance(function, ast.Name) and function.id in ("exit", "quit")


def _assign(machine: Machine, node: ast.Assign, scope: Scope) -> Flow:
    value = evaluate(machine, node.value, scope)
    machine.line = (scope.file, node.lineno)
    for target in node.targets:
        assign(machine, target, value, scope)
    return NEXT


def _annotated(machine: Machine, node: ast.AnnAssign, scope: Scope) -> Flow:
    if node.value is not None:
        value = evaluate(machine, node.value, scope)
        machine.line = (scope.file, node.lineno)
        assign(machine, node.target, value, scope)
    return NEXT


def _augmented(machine: Machine, node: ast.AugAssign, scope: Scope) -> Flow:
    target = node.target
    before = evaluate(machine, _loaded(target), scope)
    change = evaluate(machine, node.value, scope)
    if isinstance(before, Tensor) or isinstance(change, Tensor):
        value = tensor_arithmetic(machine, type(node.op), before, change)
    elif isinstance(before, list) and isinstance(node.op, ast.Add):
        before.extend(items_of(change) or [])
        value = before
    elif machine.rounds and isinstance(before, int | float):
        value = UNKNOWN  # each round would add its own value
    else:
        value = binary(type(node.op), before, change)
    assign(machine, target, value, scope)
    return NEXT


def _loaded(target: ast.expr) -> ast.expr:
    if isinstance(target, ast.Name):
        return ast.Name(target.id, ast.Load())
    if isinstance(target, ast.Attribute):
        return ast.Attribute(target.value, target.attr, ast.Load())
    assert isinstance(target, ast.Subscript)
    return ast.Subscript(target.value, target.slice, ast.Load())


def assign(machine: Machine, target: ast.expr, value: Value, scope: Scope) -> None:
    """Assign the value to a target of any kind."""
    if type(target) is ast.Name:
        scope.bind(target.id, value)
        machine.note_assigned(target.id, value)
    elif isinstance(target, ast.Attribute):
        set_attribute(machine, evaluate(machine, target.value, scope), target.attr, value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        _unpack(machine, target.elts, value, scope)
    elif isinstance(target, ast.Subscript):
        _set_item(machine, target, value, scope)
    elif isinstance(target, ast.Starred):
        assign(machine, target.value, value, scope)


def _unpack(machine: Machine, targets: list[ast.expr], value: Value, scope: Scope) -> None:
    items = items_of(value)
    starred = next((place for place, each in enumerate(targets) if isinstance(each, ast.Starred)), None)
    if items is None or (starred is None and len(items) != len(targets)):
        like = value.attrs.get("like", UNKNOWN) if isinstance(value, Thing) else UNKNOWN
        items = [like] * len(targets)
    elif starred is not None:
        behind = len(targets) - starred - 1
        items = [*items[:starred], items[starred : len(items) - behind], *items[len(items) - behind :]]
        items += [UNKNOWN] * (len(targets) - len(items))
    for target, item in zip(targets, items, strict=False):
        assign(machine, target, item, scope)


def set_attribute(machine: Machine, owner: Value, name: str, value: Value) -> None:
    """Set an attribute, and note the assignment as a fact."""
    machine.note_assigned(name, value)
    kind = type(owner)
    if kind is Instance or kind is Thing:
        owner.attrs[name] = value
        if name in ("requires_grad", "trainable"):
            freeze(owner, truth(value) is not False)
    elif isinstance(owner, Tensor) and name == "requires_grad":
        owner.grad = bool(truth(value))
    elif isinstance(owner, Class):
        owner.names[name] = value
    elif isinstance(owner, Module):
        owner.scope.names[name] = value
    elif isinstance(owner, Name):
        machine.note_call(f"{owner.path}.{name} =", (value,), {}, owner, None)
    elif isinstance(owner, Member) and isinstance(owner.owner, Instance | Thing):
        if owner.name in HEADS:
            owner.owner.attrs[LAST] = value
        machine.note_call(f".{owner.name}.{name} =", (value,), {}, owner, None)


def freeze(owner: Value, learns: bool) -> None:
    """Mark a model as frozen or not. With some layers unfrozen again it is trainable: backward runs through it."""
    if isinstance(owner, Thing) and owner.path == PART:
        if learns or owner.attrs.get("whole", True):
            freeze(owner.attrs["of"], learns)
    elif isinstance(owner, Thing):
        owner.attrs["frozen"] = not learns


def _set_item(machine: Machine, target: ast.Subscript, value: Value, scope: Scope) -> None:
    owner = evaluate(machine, target.value, scope)
    key = evaluate(machine, target.slice, scope)
    if isinstance(key, str):
        machine.note_assigned(key, value)
    if isinstance(owner, Name):
        machine.note_call(f"{owner.path}[]", (key, value), {}, owner, None)
    elif isinstance(owner, Thing) and isinstance(key, str):
        owner.attrs[key] = value
    elif isinstance(owner, Member) and isinstance(owner.owner, Thing) and owner.name in HEADS:
        owner.owner.attrs[LAST] = value
    elif isinstance(owner, dict):
        if isinstance(key, str | int | float | bool):
            owner[key] = perhaps(machine, owner.get(key, UNKNOWN), value)
    elif isinstance(owner, list) and isinstance(key, int) and -len(owner) <= key < len(owner):
        owner[key] = value


def _if(machine: Machine, node: ast.If, scope: Scope) -> Flow | Guard:
    test = evaluate(machine, node.test, scope)
    answer = truth(test)
    if answer is not None:
        note_switched_off(machine, node.test, node.orelse if answer else node.body, scope)
        return execute(machine, node.body if answer else node.orelse, scope)
    return both_ways(machine, test, node, scope)


def _with(machine: Machine, node: ast.With | ast.AsyncWith, scope: Scope) -> Flow:
    values = []
    for item in node.items:
        value = evaluate(machine, item.context_expr, scope)
        values.append(value)
        if item.optional_vars is not None:
            assign(machine, item.optional_vars, _inside(machine, value, scope), scope)
    with entered(machine, values):
        return execute(machine, node.body, scope)


def _inside(machine: Machine, value: Value, scope: Scope) -> Value:
    """Return the value of `with ... as`: that of the program's own `__enter__`, else the object itself."""
    if isinstance(value, Instance):
        enter = value.cls.lookup("__enter__")
        if isinstance(enter, Function):
            return call(machine, Bound(value, enter), (), {}, scope)
    return value


def _try(machine: Machine, node: ast.Try, scope: Scope) -> Flow:
    another = machine.rescued.get(id(node))
    if another is None:
        another = machine.rescued[id(node)] = goes_another_way(node)
    if any(_lets_go_of_imports(handler) for handler in node.handlers):
        with machine.under(Guard()):
            flow = execute(machine, node.body, scope)
    elif another:
        with machine.under(Guard(tried=True)):
            flow = execute(machine, node.body, scope)
    else:
        flow = execute(machine, node.body, scope)
    for handler in node.handlers:
        if handler.name:
            scope.bind(handler.name, UNKNOWN)
        before = dict(scope.names)
        with machine.under(Guard()):
            execute(machine, handler.body, scope)
        # The body is the normal case; a handler only adds what the body left undefined.
        for name, value in before.items():
            scope.names[name] = _kept(value, scope.names.get(name), another)
    if flow is NEXT:
        flow = execute(machine, node.orelse, scope)
    final = execute(machine, node.finalbody, scope)
    return final if final is not NEXT else flow


def _kept(meant: Value, instead: Value, another: bool) -> Value:
    """Return the value of the body; for a device, either that or the handler's if the handler is a fallback."""
    return either([meant, instead], True) if another and _may_be_device(meant) and _may_be_device(instead) else meant


def _may_be_device(value: Value) -> bool:
    return isinstance(value, str) or (isinstance(value, Thing) and value.path == "torch.device")


def _lets_go_of_imports(handler: ast.ExceptHandler) -> bool:
    """Return whether the handler catches a failed import."""
    names = [each.id for each in nodes(handler.type) if isinstance(each, ast.Name)] if handler.type else []
    return "ImportError" in names or "ModuleNotFoundError" in names


def _return(machine: Machine, node: ast.Return, scope: Scope) -> Flow:
    value = evaluate(machine, node.value, scope)
    scope.names.setdefault("\0returns", []).append(value)
    return RETURN


def _raise(machine: Machine, node: ast.Raise, scope: Scope) -> Flow:
    evaluate(machine, node.exc, scope)
    machine.line = (scope.file, node.lineno)
    return RAISE


def _assert(machine: Machine, node: ast.Assert, scope: Scope) -> Flow:
    test = evaluate(machine, node.test, scope)
    if isinstance(test, Unknown) and test.gpu is True and not machine.guards:
        machine.facts.refusals.append((scope.file, node.lineno))
    return NEXT


def _delete(machine: Machine, node: ast.Delete, scope: Scope) -> Flow:
    for target in node.targets:
        if isinstance(target, ast.Name):
            scope.names.pop(target.id, None)
        elif isinstance(target, ast.Attribute):
            owner = evaluate(machine, target.value, scope)
            if isinstance(owner, Instance | Thing):
                owner.attrs.pop(target.attr, None)
    return NEXT


def _global(machine: Machine, node: ast.Global, scope: Scope) -> Flow:
    scope.global_names = scope.global_names.union(node.names)
    return NEXT


def _nonlocal(machine: Machine, node: ast.Nonlocal, scope: Scope) -> Flow:
    return NEXT


def _match(machine: Machine, node: ast.Match, scope: Scope) -> Flow:
    evaluate(machine, node.subject, scope)
    for case in node.cases:
        for name in _captures(case.pattern):
            scope.bind(name, UNKNOWN)
        with machine.under(Guard()):
            execute(machine, case.body, scope)
    return NEXT


def _captures(pattern: ast.pattern) -> list[str]:
    names = (getattr(each, "name", None) for each in nodes(pattern) if isinstance(each, ast.MatchAs | ast.MatchStar))
    return [name for name in names if name]


def _definition(machine: Machine, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> Flow:
    scope.bind(node.name, define_function(machine, node, scope))
    return NEXT


def _class(machine: Machine, node: ast.ClassDef, scope: Scope) -> Flow:
    scope.bind(node.name, define_class(machine, node, scope))
    return NEXT


def _import(machine: Machine, node: ast.Import, scope: Scope) -> Flow:
    import_plain(machine, node, scope)
    return NEXT


def _import_from(machine: Machine, node: ast.ImportFrom, scope: Scope) -> Flow:
    import_from(machine, node, scope)
    return NEXT


def _leave(flow: Flow) -> Callable[[Machine, Any, Scope], Flow]:
    return lambda machine, node, scope: flow


Act = Callable[[Machine, Any, Scope], "Flow | Guard"]
_ACTS: dict[type, Act] = {
    ast.Expr: _expression, ast.Assign: _assign, ast.AnnAssign: _annotated, ast.AugAssign: _augmented, ast.If: _if,
    ast.For: for_loop, ast.AsyncFor: for_loop, ast.While: while_loop, ast.With: _with, ast.AsyncWith: _with,
    ast.Try: _try, ast.TryStar: _try, ast.Return: _return, ast.Raise: _raise, ast.Assert: _assert, ast.Delete: _delete,
    ast.Global: _global, ast.Nonlocal: _nonlocal, ast.Match: _match, ast.FunctionDef: _definition,
    ast.AsyncFunctionDef: _definition, ast.ClassDef: _class, ast.Import: _import, ast.ImportFrom: _import_from,
    ast.Break: _leave(BREAK), ast.Continue: _leave(CONTINUE),
}  # fmt: skip
