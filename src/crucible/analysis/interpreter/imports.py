"""Imports: files of the program are followed, libraries become names."""

from __future__ import annotations

import ast
from pathlib import PurePosixPath

from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.values.library_names import canonical, member_of
from crucible.analysis.values.scope import Scope
from crucible.analysis.values.values import MISSING, UNKNOWN, Module, Value, named

MAX_FILES = 200


def import_plain(machine: Machine, node: ast.Import, scope: Scope) -> None:
    machine.line = (scope.file, node.lineno)
    for alias in node.names:
        local = local_module(machine, alias.name)
        if local is not None:
            name = alias.name.partition(".")[0]
            # A folder without an `__init__.py` is a module too.
            top = local if alias.asname else local_module(machine, name) or Module(name, Scope(scope.file))
            scope.bind(alias.asname or name, top)
            continue
        machine.note_import(alias.name)
        if alias.asname:
            scope.bind(alias.asname, named(canonical(alias.name)))
        else:
            top_name = alias.name.partition(".")[0]
            scope.bind(top_name, named(canonical(top_name)))


def import_from(machine: Machine, node: ast.ImportFrom, scope: Scope) -> None:
    machine.line = (scope.file, node.lineno)
    module = _absolute(machine, node, scope.file)
    local = local_module(machine, module) if module else None
    if local is None and not node.level and module != "__future__":
        machine.note_import(module)
    for alias in node.names:
        if alias.name == "*":
            _star(local, module, scope)
            continue
        value = _member(machine, local, module, alias.name, bool(node.level))
        if local is None and not node.level and module in ("tensorflow", "keras.api", "tensorflow.compat.v1"):
            machine.note_import(f"{module}.{alias.name}")
        scope.bind(alias.asname or alias.name, value)


def _absolute(machine: Machine, node: ast.ImportFrom, file: str) -> str:
    """Return the full name of the imported module, with a relative import resolved."""
    if not node.level:
        return node.module or ""
    package = PurePosixPath(file).parent.parts
    if file == machine.sources.entry:
        package = ()
    base = package[: len(package) - node.level + 1] if node.level > 1 else package
    return ".".join([*base, *([node.module] if node.module else [])])


def _star(local: Module | None, module: str, scope: Scope) -> None:
    if local is None:
        scope.top.stars = (*scope.top.stars, canonical(module))
        return
    for name, value in local.scope.names.items():
        if not name.startswith(("_", "\0")):
            scope.bind(name, value)


def _member(machine: Machine, local: Module | None, module: str, name: str, relative: bool) -> Value:
    if local is not None:
        found = local.scope.lookup(name)
        if found is not MISSING:
            return found
    inner = local_module(machine, f"{module}.{name}" if module else name) if module or relative else None
    if inner is not None:
        return inner
    if local is not None:
        return UNKNOWN
    return member_of(module, name)


def local_module(machine: Machine, name: str) -> Module | None:
    """Return a file of the program as a module, or None. It is followed at the first import."""
    if name not in machine.places:
        machine.places[name] = machine.sources.module(name)
    file = machine.places[name]
    if file is None:
        return None
    if file not in machine.modules:
        if len(machine.modules) >= MAX_FILES:
            return None
        follow_file(machine, file)
    return Module(name, machine.modules[file])


def follow_file(machine: Machine, file: str) -> Scope:
    """Follow a file in a scope of its own, and return the scope."""
    scope = machine.modules[file] = Scope(file)
    line, guards, depth = machine.line, machine.guards, machine.depth
    machine.guards = ()
    machine.execute(machine.tree(file).body, scope)
    machine.line, machine.guards, machine.depth = line, guards, depth
    return scope
