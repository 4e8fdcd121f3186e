"""Scope: the names of a file, function or class, and where each is looked up."""

from __future__ import annotations

from crucible.analysis.values.values import MISSING, Value


class Scope:
    """`file` is the one it is written in; `outer` what is around it, and in the end `top`, the file's own scope."""

    __slots__ = ("file", "global_names", "names", "outer", "stars", "top")

    def __init__(self, file: str, outer: Scope | None = None, top: Scope | None = None) -> None:
        self.file = file
        self.names: dict[str, Value] = {}
        self.outer = outer
        self.top = top or self
        self.stars: tuple[str, ...] = ()
        self.global_names: frozenset[str] = frozenset()

    def lookup(self, name: str) -> Value:
        found = self.names.get(name, MISSING)
        return self.beyond(name) if found is MISSING else found

    def beyond(self, name: str) -> Value:
        """What the name means around this scope, where it is none of its own."""
        scope = self.outer
        while scope is not None:
            found = scope.names.get(name, MISSING)
            if found is not MISSING:
                return found
            scope = scope.outer
        return MISSING

    def bind(self, name: str, value: Value) -> None:
        if name in self.global_names:
            self.top.names[name] = value
        else:
            self.names[name] = value
