"""Asked: one call of a library, as its handler gets it."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.values.scope import Scope
from crucible.analysis.values.values import Thing, Value


@dataclass(eq=False, slots=True)
class Asked:
    """One call of a library. Not frozen, which halves the time to make one; nobody changes it."""

    machine: Machine
    path: str
    args: tuple[Value, ...]
    kwargs: dict[str, Value]
    scope: Scope
    owner: Value = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]

    def get(self, place: int, name: str, default: Value = None) -> Value:
        """Return the argument at this position, or of this name; -1 for a keyword-only argument."""
        if name in self.kwargs:
            return self.kwargs[name]
        return self.args[place] if 0 <= place < len(self.args) else default

    def thing(self, **attrs: Value) -> Thing:
        """Return the object that the call creates, if nothing more is known about it."""
        return Thing(self.path, self.args, self.kwargs, self.machine.line, attrs)
