"""Branches that the command line did not choose, but could have: does one of them use a GPU?"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.source.trees import nodes
from crucible.analysis.values.facts import Guard
from crucible.analysis.values.scope import Scope
from crucible.analysis.values.values import Instance, Thing

_LIMIT = 400
"""Nodes to search in a branch."""


def note_switched_off(machine: Machine, test: ast.expr, body: Sequence[ast.stmt], scope: Scope) -> None:
    """Note GPU use in a branch that a flag switches off. A branch that a constant switches off is dead code."""
    if not body or not _asks_a_flag(test, scope):
        return
    for place, node in enumerate(each for statement in body for each in nodes(statement)):
        if place > _LIMIT:
            return
        if isinstance(node, ast.Import | ast.ImportFrom):
            _note_imports(machine, node, scope)
        if _uses_gpu(node):
            machine.facts.switched_off.append((scope.file, getattr(node, "lineno", 0)))
            return


def _note_imports(machine: Machine, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
    """Note the imports of the branch as conditional: a flag brings in a package as it brings in a GPU."""
    modules = [each.name for each in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    machine.line = (scope.file, node.lineno)
    with machine.under(Guard()):
        for module in modules if not getattr(node, "level", 0) else ():
            if machine.sources.module(module) is None:
                machine.note_import(module)


def _asks_a_flag(test: ast.expr, scope: Scope) -> bool:
    """Return whether the test depends on an attribute of an options object."""
    for node in nodes(test):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = scope.lookup(node.value.id)
            if isinstance(owner, Instance) or (isinstance(owner, Thing) and owner.path == "namespace"):
                return True
    return False


def _uses_gpu(node: ast.AST) -> bool:
    """Return whether the node moves something to a GPU."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "cuda" or any(
            isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value.startswith("cuda")
            for each in node.args
        )
    return False
