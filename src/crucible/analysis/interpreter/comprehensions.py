"""Comprehensions: lists, sets, generators and dicts written as loops."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from crucible.analysis.interpreter.iteration import UNROLLED, item_like, items_of
from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.values.operators import truth
from crucible.analysis.values.scope import Scope
from crucible.analysis.values.values import PRINTED, UNKNOWN, Thing, Unknown, Value

ALIKE = 16
"""Rounds of a comprehension to follow if the first and the last of them have unknown values."""


def of_items(machine: Machine, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scope: Scope) -> Value:
    """Return the list, or a list-like object if not all rounds are known."""
    inner = Scope(scope.file, scope, scope.top)
    found: list[Value] = []

    def add() -> None:
        found.append(UNKNOWN if _all_alike(found) else machine.evaluate(node.elt, inner))

    return found if _generate(machine, node.generators, inner, add) else _part(found)


def _all_alike(found: list[Value]) -> bool:
    """Return whether the first rounds were all unknown, such as the losses of a hundred batches."""
    return len(found) >= ALIKE and isinstance(found[0], Unknown) and isinstance(found[-1], Unknown)


def of_pairs(machine: Machine, node: ast.DictComp, scope: Scope) -> Value:
    """Return the dict, or UNKNOWN if not all rounds are known."""
    inner = Scope(scope.file, scope, scope.top)
    found: dict[Any, Value] = {}

    def add() -> None:
        key = machine.evaluate(node.key, inner)
        value = machine.evaluate(node.value, inner)
        if type(key) in PRINTED:
            found[key] = value

    return found if _generate(machine, node.generators, inner, add) else UNKNOWN


def _part(found: list[Value]) -> Value:
    """Return a list of unknown length whose items look like the first one."""
    return Thing("list", attrs={"like": found[0]}) if found else UNKNOWN


def _generate(machine: Machine, generators: list[ast.comprehension], scope: Scope, act: Callable[[], object]) -> bool:
    """Go through the rounds of a comprehension. Return whether all of them are known."""
    if not generators:
        act()
        return True
    first, rest = generators[0], generators[1:]
    source = machine.evaluate(first.iter, scope)
    items = items_of(source)
    complete = items is not None and len(items) <= UNROLLED
    rounds = items[:UNROLLED] if items is not None else _unknown_round(source)
    for item in rounds:
        machine.assign(first.target, item, scope)
        answers = [truth(machine.evaluate(condition, scope)) for condition in first.ifs]
        if False in answers:
            continue
        complete = _generate(machine, rest, scope, act) and complete and None not in answers
    return complete


def _unknown_round(source: Value) -> list[Value]:
    return [item_like(source)]
