"""Branches: an undecided condition is followed both ways, and the values that differ become one of two."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from crucible.analysis.interpreter.machine import BREAK, CONTINUE, NEXT, RAISE, RETURN, Flow, Machine
from crucible.analysis.source.trees import nodes
from crucible.analysis.values.facts import Guard
from crucible.analysis.values.scope import Scope
from crucible.analysis.values.values import MISSING, Instance, Unknown, Value, either

_LEAVES = (RETURN, RAISE, BREAK, CONTINUE)


def both_ways(machine: Machine, test: Value, node: ast.If, scope: Scope) -> Flow | Guard:
    """Follow both branches. Return how the block was left, or a guard for the rest of it if only one branch goes on."""
    gpu = test.gpu if isinstance(test, Unknown) else None
    both_happen = gpu is None and _asks_rank(node.test)
    holder = scope.lookup("self")
    kept = holder.attrs if isinstance(holder, Instance) else {}
    names, attrs = dict(scope.names), dict(kept)
    yes = _one_way(machine, Guard(gpu, both_happen, every=_every(machine, node.test, scope)), node.body, scope)
    names_yes, attrs_yes = dict(scope.names), dict(kept)
    _put(scope.names, names)
    _put(kept, attrs)
    no = _one_way(machine, Guard(None if gpu is None else not gpu, both_happen), node.orelse, scope)
    if yes is NEXT and no in _LEAVES:
        _keep(scope.names, names_yes)
        _put(kept, attrs_yes)
    elif yes is NEXT:
        _merge(scope.names, names_yes, gpu)
        _merge(kept, attrs_yes, gpu)
    else:
        _keep(scope.names, names_yes, only_returns=True)
    return _afterwards(machine, gpu, yes, no)


def perhaps(machine: Machine, before: Value, value: Value) -> Value:
    """Return the new value of a dict entry; under an undecided condition, either the new or the old one.

    Texts only: a number that is set only sometimes is still the best guess.
    """
    if type(value) is not str or not machine.guards or machine.situation().certain:
        return value
    return either([value, before], machine.guards[-1].gpu is not None)


def _asks_rank(test: ast.expr) -> bool:
    """Return whether the test is for a rank: then each process takes its own branch, so that both are taken."""
    names = (getattr(each, "id", getattr(each, "attr", "")) for each in nodes(test))
    return any("rank" in name.lower() for name in names)


def _every(machine: Machine, test: ast.expr, scope: Scope) -> int:
    """Return how many rounds pass between those in which a test like `step % 4 == 0` holds; else 1."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return max(_every(machine, each, scope) for each in test.values)
    if not (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq) and isinstance(test.left, ast.BinOp)):
        return 1
    if not isinstance(test.left.op, ast.Mod) or machine.evaluate(test.comparators[0], scope) != 0:
        return 1
    if not isinstance(test.left.right, ast.Constant | ast.Name | ast.Attribute):
        return 1  # evaluating a call here would follow it twice
    rounds = machine.evaluate(test.left.right, scope)
    return rounds if type(rounds) is int and rounds > 0 else 1


def _one_way(machine: Machine, guard: Guard, body: Sequence[ast.stmt], scope: Scope) -> Flow:
    if not body:
        return NEXT
    with machine.under(guard):
        return machine.execute(body, scope)


def _put(names: dict[str, Value], before: dict[str, Value]) -> None:
    """Set the names back to these, but keep the values returned so far."""
    returns = names.get("\0returns", MISSING)
    names.clear()
    names.update(before)
    if returns is not MISSING:
        names["\0returns"] = returns


def _keep(names: dict[str, Value], other: dict[str, Value], only_returns: bool = False) -> None:
    """Continue with the names of the other branch, or only with its returned values."""
    if not only_returns:
        _put(names, other)
    elif "\0returns" in other:
        names["\0returns"] = other["\0returns"]


def _merge(names: dict[str, Value], other: dict[str, Value], gpu: bool | None) -> None:
    """Merge the names of the other branch: values that differ become one of two."""
    for name, value in other.items():
        mine = names.get(name, MISSING)
        if mine is MISSING:
            names[name] = value
        elif mine is not value and name[0] != "\0":
            names[name] = either([mine, value] if gpu is False else [value, mine], gpu is not None)


def _afterwards(machine: Machine, gpu: bool | None, yes: Flow, no: Flow) -> Flow | Guard:
    """Return how the block was left, or a guard for its rest. Note a refusal if the branch without a GPU raises."""
    if yes is no:
        return yes
    if gpu is not None and not any(guard.gpu is not None or not guard.swept for guard in machine.guards):
        refused = no if gpu else yes
        if refused is RAISE:
            machine.facts.refusals.append(machine.line)
            return NEXT
    if yes in (RETURN, RAISE) and gpu is not None:
        return Guard(not gpu)
    if no in (RETURN, RAISE) and gpu is not None:
        return Guard(gpu)
    return NEXT
