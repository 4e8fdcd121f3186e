"""Scope: the names of a file, function or class, and where to look up others."""

from __future__ import annotations

from crucible.analysis.values.values import MISSING, Value


class Scope:
    """`file` is where it is written, `outer` the scope around it, and `top` the scope of the file."""

    __slots__ = ("file", "global_names", "names", "outer", "stars", "top")

    def __init__(self, file: str, outer: Scope | None = None, top: Scope | None = None) -> None:
        self.file = file
        self.names: dict[str, Value] = {}
        self.outer = outer
        self.top = top or self
        self.stars: tuple[str, ...] = ()
        self.global_names: frozenset[str] = frozenset()

    def lookup(self, name: str) -> Value:
        """Return the value of a name here or around this scope, or MISSING."""
        found = self.names.get(name, MISSING)
        return self.beyond(name) if found is MISSING else found

    def beyond(self, name: str) -> Value:
        """Return the value of a name around this scope, or MISSING."""
        scope = self.outer
        while scope is not None:
            found = scope.names.get(name, MISSING)
            if found is not MISSING:
                return found
            scope = scope.outer
        return MISSING

    def bind(self, name: str, value: Value) -> None:
        """Assign a name, in the file's scope if it is declared `global`."""
        if name in self.global_names:
            self.top.names[name] = value
        else:
            self.names[name] = value
