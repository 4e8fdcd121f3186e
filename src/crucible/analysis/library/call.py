"""Asked: one call of a library, for the function that knows what it means."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.values.scope import Scope
from crucible.analysis.values.values import Thing, Value


@dataclass(eq=False, slots=True)
class Asked:
    """One is made for each call, and nobody changes it: slots without being frozen take half the time."""

    machine: Machine
    path: str
    args: tuple[Value, ...]
    kwargs: dict[str, Value]
    scope: Scope
    owner: Value = None

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    def get(self, place: int, name: str, default: Value = None) -> Value:
        """The argument at this place (-1: by name alone)."""
        if name in self.kwargs:
            return self.kwargs[name]
        return self.args[place] if 0 <= place < len(self.args) else default

    def thing(self, **attrs: Value) -> Thing:
        """The object that such a call gives, if nothing more is known of it."""
        return Thing(self.path, self.args, self.kwargs, self.machine.line, attrs)
