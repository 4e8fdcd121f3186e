"""Loops: those that build something are followed round by round, those that train once for all rounds."""

from __future__ import annotations

import ast
import re

from crucible.analysis.interpreter.iteration import UNROLLED, item_like, items_of, length_of
from crucible.analysis.interpreter.machine import BREAK, NEXT, RAISE, RETURN, Flow, Machine
from crucible.analysis.source.trees import nodes
from crucible.analysis.values.facts import Loop
from crucible.analysis.values.operators import truth
from crucible.analysis.values.scope import Scope
from crucible.analysis.values.values import Thing, Value, settled, whole

_TRAINS = frozenset(
    {"backward", "zero_grad", "train_on_batch", "fit", "train_step", "apply_gradients", "no_grad", "step"}
)
_BUILDS = frozenset({"append", "extend", "add", "add_module", "insert", "register_module", "register_parameter"})
FEW = 16
"""Rounds to follow one by one of a counting loop whose body does not show what it is for."""

_TURNS = re.compile("epoch|step|iter|batch|episode|round|trial")
ROUND_STEPS = 30_000
"""Steps after which following a loop round by round stops."""


def for_loop(machine: Machine, node: ast.For | ast.AsyncFor, scope: Scope) -> Flow:
    source = machine.evaluate(node.iter, scope)
    items = items_of(source)
    loop = Loop(_target(node.target), length_of(source), (scope.file, node.lineno), _data(source))
    loops, machine.loops = machine.loops, (*machine.loops, loop)
    try:
        if items is not None and len(items) <= UNROLLED and _builds(machine, node, source, loop):
            flow = _rounds(machine, node, items, scope)
        else:
            flow = _all_rounds(machine, node, item_like(source), scope)
    finally:
        machine.loops = loops
    if flow in (RETURN, RAISE) and items != [] and isinstance(source, (list, tuple, Thing)):
        return flow
    return machine.execute(node.orelse, scope) if node.orelse else NEXT


def _all_rounds(machine: Machine, node: ast.For | ast.AsyncFor, item: Value, scope: Scope) -> Flow:
    """Follow the body once for all rounds."""
    verbs = machine.verbs
    machine.rounds += 1
    verbs.assign(machine, node.target, item, scope)
    flow = verbs.execute(machine, node.body, scope)
    machine.rounds -= 1
    return flow


def _rounds(machine: Machine, node: ast.For | ast.AsyncFor, items: list[Value], scope: Scope) -> Flow:
    begun, verbs = machine.steps, machine.verbs
    for item in items:
        verbs.assign(machine, node.target, item, scope)
        flow = verbs.execute(machine, node.body, scope)
        if flow in (RETURN, RAISE):
            return flow
        if flow is BREAK or machine.steps - begun > ROUND_STEPS:
            break
    return NEXT


def _builds(machine: Machine, node: ast.For | ast.AsyncFor, source: Value, loop: Loop) -> bool:
    """Return whether each round matters by itself. A loop over epochs is the same every time."""
    counted = isinstance(source, Thing) and source.path == "range"
    if counted and _TURNS.search(loop.target.lower()):
        return False
    called = _called(machine, node)
    if not called.isdisjoint(_TRAINS):
        return False
    if not counted or (loop.length or 0) <= FEW or not called.isdisjoint(_BUILDS):
        return True
    return _names_its_target(machine, node)


def _called(machine: Machine, node: ast.For | ast.AsyncFor) -> set[str]:
    """Return the methods that the body calls; computed once per loop."""
    found = machine.called.get(id(node))
    if found is None:
        functions = [each.func for each in _below(node) if type(each) is ast.Call]
        found = machine.called[id(node)] = {each.attr for each in functions if type(each) is ast.Attribute}
    return found


def _names_its_target(machine: Machine, node: ast.For | ast.AsyncFor) -> bool:
    """Return whether the body uses the loop's target; computed once per loop."""
    found = machine.named.get(id(node))
    if found is None:
        target = _target(node.target)
        found = any(each.id == target for each in _below(node) if type(each) is ast.Name)
        machine.named[id(node)] = found
    return found


def _below(node: ast.For | ast.AsyncFor) -> list[ast.AST]:
    return [each for statement in node.body for each in nodes(statement)]


def _target(node: ast.expr) -> str:
    """Return the names of the loop's target, separated by commas."""
    if isinstance(node, ast.Name):
        return node.id
    return ",".join(each.id for each in nodes(node) if isinstance(each, ast.Name))


def _data(source: Value) -> Value:
    """Return the loader or the like that the loop goes over, or None."""
    source = settled(source)
    if isinstance(source, Thing):
        return source.attrs.get("data", source)
    return None


def while_loop(machine: Machine, node: ast.While, scope: Scope) -> Flow:
    test = machine.evaluate(node.test, scope)
    if truth(test) is False and not machine.rounds:
        return machine.execute(node.orelse, scope)
    length = _bound(machine, node.test, scope)
    if length is None:
        breaks = (each for each in node.body if isinstance(each, ast.If) and _breaks(each))
        length = next((found for each in breaks if (found := _bound(machine, each.test, scope)) is not None), None)
    machine.rounds += 1
    with machine.around(
        Loop(ast.unparse(node.test)[:80] if len(node.body) < 200 else "", length, (scope.file, node.lineno))
    ):
        flow = machine.execute(node.body, scope)
    machine.rounds -= 1
    return flow if flow in (RETURN, RAISE) and isinstance(node.test, ast.Constant) else NEXT


def _breaks(node: ast.If) -> bool:
    return any(isinstance(each, ast.Break) for each in node.body)


def _bound(machine: Machine, test: ast.expr, scope: Scope) -> int | None:
    """Return the number that a counter is compared with, or None."""
    if isinstance(test, ast.BoolOp):
        found = [_bound(machine, each, scope) for each in test.values]
        return next((each for each in found if each is not None), None)
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
        return None
    right = whole(machine.evaluate(test.comparators[0], scope))
    left = whole(machine.evaluate(test.left, scope))
    numbers = [each for each in (left, right) if each is not None and each > 1]
    return max(numbers) if numbers else None
