"""Expressions: the value of each, as far as it can be known."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from crucible.analysis.interpreter.attributes import SPECIAL, attribute
from crucible.analysis.interpreter.calls import called
from crucible.analysis.interpreter.comprehensions import of_items, of_pairs
from crucible.analysis.interpreter.functions import defaults_of
from crucible.analysis.interpreter.iteration import UNROLLED, items_of
from crucible.analysis.interpreter.machine import Exhausted, Machine
from crucible.analysis.interpreter.subscripts import subscript
from crucible.analysis.library import BUILTIN_NAMES, called_library
from crucible.analysis.values.facts import Guard
from crucible.analysis.values.library_names import member_of
from crucible.analysis.values.operators import MAX_LENGTH, binary, compare, negated, truth, unary
from crucible.analysis.values.scope import Scope
from crucible.analysis.values.tensors import tensor_arithmetic, tensor_comparison
from crucible.analysis.values.values import (
    MISSING,
    PRINTED,
    UNKNOWN,
    Class,
    Function,
    Name,
    Tensor,
    Thing,
    Unknown,
    Value,
    either,
    named,
)

MAX_DEPTH = 90
"""Nesting of expressions and calls. Python itself would stop the interpreter not far beyond."""

_Name, _Constant, _Starred = ast.Name, ast.Constant, ast.Starred


def evaluate(machine: Machine, node: ast.expr | None, scope: Scope) -> Value:
    """Return the value of an expression, which counts as a step. Raises Exhausted when the limit is reached."""
    machine.steps = steps = machine.steps + 1
    if steps > machine.limit:
        raise Exhausted
    kind = type(node)
    if kind is _Name:
        found = scope.names.get(node.id, MISSING)  # type: ignore[union-attr]
        return _beyond(machine, node.id, scope) if found is MISSING else found  # type: ignore[union-attr]
    if kind is _Constant:
        return node.value  # type: ignore[union-attr]
    act = _ACTS.get(kind)
    depth = machine.depth
    if act is None or depth > MAX_DEPTH:
        return None if node is None else UNKNOWN
    machine.depth = depth + 1
    try:
        return act(machine, node, scope)
    finally:
        machine.depth = depth


def _beyond(machine: Machine, name: str, scope: Scope) -> Value:
    found = scope.beyond(name)
    return _outside(machine, name, scope) if found is MISSING else found


def _outside(machine: Machine, name: str, scope: Scope) -> Value:
    """Return the value of a name that the program does not define: a special name, a builtin or UNKNOWN."""
    if name == "__name__":
        return "__main__" if scope.file == machine.sources.entry else scope.file
    if name == "__file__":
        return scope.file
    if name in BUILTIN_NAMES:
        return named(f"builtins.{name}")
    stars = scope.top.stars
    return named(f"{stars[-1]}.{name}") if stars else UNKNOWN


def _attribute(machine: Machine, node: ast.Attribute, scope: Scope) -> Value:
    written = node.value
    if type(written) is _Name:  # nearly always: inlined, as `evaluate` would do it
        machine.steps = steps = machine.steps + 1
        if steps > machine.limit:
            raise Exhausted
        owner = scope.names.get(written.id, MISSING)
        if owner is MISSING:
            owner = _beyond(machine, written.id, scope)
    else:
        owner = evaluate(machine, written, scope)
    if type(owner) is Name and owner.path not in SPECIAL:
        return member_of(owner.path, node.attr)
    return attribute(machine, owner, node.attr)


def _call(machine: Machine, node: ast.Call, scope: Scope) -> Value:
    """Return the result of a call.

    Names and constant arguments are a quarter of all expressions: they are inlined here, with a step counted for each.
    The limit is checked by the next evaluation, at the latest by the call itself.
    """
    written = node.func
    if type(written) is _Name:
        machine.steps += 1
        function = scope.names.get(written.id, MISSING)
        if function is MISSING:
            function = _beyond(machine, written.id, scope)
    else:
        function = evaluate(machine, written, scope)
    args: list[Value] = []
    for each in node.args:
        if type(each) is _Name:
            machine.steps += 1
            found = scope.names.get(each.id, MISSING)
            args.append(_beyond(machine, each.id, scope) if found is MISSING else found)
        elif type(each) is _Constant:
            machine.steps += 1
            args.append(each.value)
        elif type(each) is _Starred:
            args.extend(_spread(evaluate(machine, each.value, scope)))
        else:
            args.append(evaluate(machine, each, scope))
    kwargs: dict[str, Value] = _keywords(machine, node.keywords, function, len(args), scope) if node.keywords else {}
    machine.line = (scope.file, node.lineno)
    if function is UNKNOWN and type(written) is _Name:
        if machine.steps > machine.limit:
            raise Exhausted
        machine.note_call(f"?.{written.id}", tuple(args), kwargs, None, UNKNOWN)
    machine.steps = steps = machine.steps + 1
    if steps > machine.limit:
        raise Exhausted
    if type(function) is Name:  # half of all calls
        return called_library(machine, function.path, tuple(args), kwargs, scope)
    return called(machine, function, tuple(args), kwargs, scope)


def _keywords(
    machine: Machine, keywords: list[ast.keyword], function: Value, placed: int, scope: Scope
) -> dict[str, Value]:
    kwargs: dict[str, Value] = {}
    for keyword in keywords:
        name, value = keyword.arg, evaluate(machine, keyword.value, scope)
        if name is not None:
            kwargs[name] = value
        else:
            kwargs.update(_spread_by_name(value, function, placed, kwargs))
    return kwargs


def _spread_by_name(value: Value, function: Value, placed: int, known: dict[str, Value]) -> dict[str, Value]:
    """Return the keyword arguments that `**value` passes; if it is unknown, all that the function accepts may be."""
    if isinstance(value, dict):
        return {str(name): each for name, each in value.items()}
    if isinstance(value, Thing) and value.path == "namespace":
        return value.attrs
    return {name: UNKNOWN for name in _accepted(function)[placed:] if name not in known}


def _accepted(function: Value) -> list[str]:
    """Return the parameter names of a function or dataclass of the program; `**settings` may contain any of them."""
    if isinstance(function, Class) and function.is_dataclass():
        return list(function.all_fields())
    if not isinstance(function, Function):
        return []
    arguments = function.node.args
    return [each.arg for each in (*arguments.args, *arguments.kwonlyargs)]


def _spread(value: Value) -> list[Value]:
    found = items_of(value)
    return list(found[:UNROLLED]) if found is not None else [UNKNOWN]


def _binary(machine: Machine, node: ast.BinOp, scope: Scope) -> Value:
    left, right = evaluate(machine, node.left, scope), evaluate(machine, node.right, scope)
    operator = type(node.op)
    if type(left) is Tensor or type(right) is Tensor:
        return tensor_arithmetic(machine, operator, left, right)
    if type(left) is Thing and left.path == "pathlib.Path" and operator is ast.Div and isinstance(right, str):
        return Thing("pathlib.Path", (*left.args, right))
    return binary(operator, left, right)


def _behind(machine: Machine, node: ast.expr, scope: Scope, before: Value, is_and: bool) -> Value:
    """Return the value of the next operand. Behind `gpus and` it is only evaluated if there are GPUs."""
    if not isinstance(before, Unknown) or before.gpu is None:
        return evaluate(machine, node, scope)
    with machine.under(Guard(before.gpu is is_and)):
        return evaluate(machine, node, scope)


def _boolean(machine: Machine, node: ast.BoolOp, scope: Scope) -> Value:
    """Return the value of `and` or `or` as Python does, undecided if one operand is unknown."""
    is_and = isinstance(node.op, ast.And)
    undecided: list[Value] = []
    for part in node.values:
        value = _behind(machine, part, scope, undecided[-1] if undecided else None, is_and)
        answer = truth(value)
        if answer is not None and answer is not is_and:
            # Unknown operands before it cannot change the result; a check for a GPU among them still counts.
            asks = any(isinstance(each, Unknown) and each.gpu is not None for each in undecided)
            return _mixed([*undecided, value], is_and) if asks else value
        if answer is None:
            undecided.append(value)
    return _mixed(undecided, is_and) if undecided else value


def _mixed(values: list[Value], is_and: bool) -> Value:
    """Return the value of undecided operands. `flag and gpu_available` holds only if there is a GPU; other mixtures say
    nothing about it.
    """
    asks = [each for each in values if isinstance(each, Unknown) and each.gpu is not None]
    if asks and (is_and or len(values) == 1):
        return asks[0] if asks[0].gpu or len(values) == 1 else UNKNOWN
    if len(values) == 1:
        return values[0]
    return either(values) if not is_and and not any(isinstance(each, Unknown) for each in values) else UNKNOWN


def _compare(machine: Machine, node: ast.Compare, scope: Scope) -> Value:
    left = evaluate(machine, node.left, scope)
    result: Value = True
    for operator, each in zip(node.ops, node.comparators, strict=True):
        right = evaluate(machine, each, scope)
        answer = _compared(operator, left, right)
        if answer is False:
            return False
        if answer is not True:
            result = answer
        left = right
    return result


_COUNTED = Name("torch.cuda.device_count()")


def _compared(operator: ast.cmpop, left: Value, right: Value) -> Value:
    kinds = type(left), type(right)
    if Name in kinds:
        for one, other in ((left, right), (right, left)):
            if type(one) is Name and one == _COUNTED and isinstance(other, int):
                positive = (
                    isinstance(operator, ast.Gt | ast.GtE | ast.NotEq) if one is left else isinstance(operator, ast.Lt)
                )
                return Unknown(positive)
    if Tensor in kinds:
        return tensor_comparison(type(operator), left, right)
    return compare(type(operator), left, right)


def _unary(machine: Machine, node: ast.UnaryOp, scope: Scope) -> Value:
    value = evaluate(machine, node.operand, scope)
    if isinstance(value, Tensor) and not isinstance(node.op, ast.Not):
        return tensor_arithmetic(machine, ast.Add, value, 0)
    return negated(value) if isinstance(node.op, ast.Not) else unary(type(node.op), value)


def _choice(machine: Machine, node: ast.IfExp, scope: Scope) -> Value:
    test = evaluate(machine, node.test, scope)
    answer = truth(test)
    if answer is not None:
        return evaluate(machine, node.body if answer else node.orelse, scope)
    gpu = test.gpu if isinstance(test, Unknown) else None
    guards = machine.guards
    try:
        machine.guards = (*guards, Guard(gpu))
        yes = evaluate(machine, node.body, scope)
        machine.guards = (*guards, Guard(None if gpu is None else not gpu))
        no = evaluate(machine, node.orelse, scope)
    finally:
        machine.guards = guards
    return either([no, yes] if gpu is False else [yes, no], gpu is not None)


def _sequence(machine: Machine, node: ast.Tuple | ast.List | ast.Set, scope: Scope) -> Value:
    found: list[Value] = []
    for each in node.elts[:MAX_LENGTH]:
        if type(each) is _Starred:
            found.extend(_spread(evaluate(machine, each.value, scope)))
        else:
            found.append(evaluate(machine, each, scope))
    return tuple(found) if isinstance(node, ast.Tuple) else found


def _dict(machine: Machine, node: ast.Dict, scope: Scope) -> Value:
    found: dict[Any, Value] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        each = evaluate(machine, value, scope)
        if key is None:
            found.update(each if isinstance(each, dict) else {})
            continue
        name = evaluate(machine, key, scope)
        if type(name) in PRINTED or type(name) is Name:
            found[name] = each
    return found


def _lambda(machine: Machine, node: ast.Lambda, scope: Scope) -> Value:
    return Function(node, scope, "lambda", defaults_of(machine, node.args, scope))


def _text(machine: Machine, node: ast.JoinedStr, scope: Scope) -> Value:
    parts: list[str] = []
    for each in node.values:
        value = evaluate(machine, each.value if isinstance(each, ast.FormattedValue) else each, scope)
        if isinstance(each, ast.FormattedValue) and each.format_spec is not None:
            value = UNKNOWN
        parts.append(str(value) if type(value) in PRINTED else "\0")
    text = "".join(parts)
    return UNKNOWN if "\0" in text or len(text) > MAX_LENGTH else text


def _walrus(machine: Machine, node: ast.NamedExpr, scope: Scope) -> Value:
    value = evaluate(machine, node.value, scope)
    scope.bind(node.target.id, value)
    return value


def _subscript(machine: Machine, node: ast.Subscript, scope: Scope) -> Value:
    return subscript(machine, node, scope)


def _inner(machine: Machine, node: ast.Await | ast.Starred, scope: Scope) -> Value:
    return evaluate(machine, node.value, scope)


def _yielded(machine: Machine, node: ast.Yield | ast.YieldFrom, scope: Scope) -> Value:
    value = evaluate(machine, node.value, scope)
    yields = scope.names.setdefault("\0yields", [])
    if isinstance(yields, list):
        yields.append(value)
    return UNKNOWN


def _formatted(machine: Machine, node: ast.FormattedValue, scope: Scope) -> Value:
    return evaluate(machine, node.value, scope)


def _slice(machine: Machine, node: ast.Slice, scope: Scope) -> Value:
    parts = [evaluate(machine, each, scope) for each in (node.lower, node.upper, node.step)]
    return Thing("slice", tuple(parts))


_ACTS: dict[type, Callable[[Machine, Any, Scope], Value]] = {
    ast.Attribute: _attribute, ast.Call: _call, ast.BinOp: _binary, ast.BoolOp: _boolean,
    ast.Compare: _compare, ast.UnaryOp: _unary, ast.IfExp: _choice, ast.Tuple: _sequence, ast.List: _sequence,
    ast.Set: _sequence, ast.Dict: _dict, ast.ListComp: of_items, ast.SetComp: of_items,
    ast.GeneratorExp: of_items, ast.DictComp: of_pairs, ast.Lambda: _lambda, ast.JoinedStr: _text,
    ast.NamedExpr: _walrus, ast.Subscript: _subscript, ast.Await: _inner, ast.Starred: _inner, ast.Yield: _yielded,
    ast.YieldFrom: _yielded, ast.FormattedValue: _formatted, ast.Slice: _slice,
}  # fmt: skip
