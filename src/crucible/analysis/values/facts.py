"""Facts: what was seen in the code that can run, each with its line.

Calls and assignments are many, so their classes have slots and are not frozen: that makes one in half the time of a
named tuple and a quarter of that of a frozen dataclass. Nobody changes one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from crucible.analysis.values.values import Value, Where


class Guard(NamedTuple):
    """A condition that could not be decided. `gpu`: the code under it runs if there is a GPU (True) or none (False)."""

    gpu: bool | None = None
    swept: bool = False
    """Not a condition on running: no call of this code was seen, or other processes take this branch."""

    tried: bool = False
    """Not a condition either: the code runs, and if it fails the program has a fallback."""

    every: int = 1
    """It holds in one of this many rounds: 4 for `if step % 4 == 0`."""


class Loop(NamedTuple):
    """A loop. `length` is its number of rounds, None if unknown; `data` is the loader it goes over, if any."""

    target: str
    length: int | None
    where: Where
    data: Value = None


@dataclass(eq=False, slots=True)
class Situation:
    """Where and under which conditions something was seen.

    The properties are asked of every call, and most have no guards: `bool(...)` answers those without a generator.
    """

    where: Where
    guards: tuple[Guard, ...]
    loops: tuple[Loop, ...]

    @property
    def swept(self) -> bool:
        """Whether no call of this code was seen. All of its facts have that guard first."""
        return bool(self.guards) and self.guards[0].swept

    @property
    def certain(self) -> bool:
        """Whether it happens on every run of the code around it."""
        return not self.guards or all(guard.swept or guard.tried for guard in self.guards)

    @property
    def tried(self) -> bool:
        """Whether the program has a fallback if it fails."""
        return bool(self.guards) and any(guard.tried for guard in self.guards)

    @property
    def with_gpu(self) -> bool:
        """Whether it runs only if there is a GPU."""
        return any(guard.gpu is True for guard in self.guards)

    @property
    def without_gpu(self) -> bool:
        """Whether it runs only if there is no GPU."""
        return bool(self.guards) and any(guard.gpu is False for guard in self.guards)


@dataclass(eq=False, slots=True)
class Import(Situation):
    """An import of a module of a library."""

    module: str


@dataclass(eq=False, slots=True)
class Call(Situation):
    """A call of a library. A method of an unknown object has a path like `.cuda`."""

    path: str
    last: str
    """The last part of the path. Stored, because every conclusion needs it."""

    args: tuple[Value, ...]
    kwargs: dict[str, Value]
    owner: Value
    result: Value

    def argument(self, position: int, name: str, default: Value = None) -> Value:
        """Return the argument of this name or position."""
        if name in self.kwargs:
            return self.kwargs[name]
        return self.args[position] if 0 <= position < len(self.args) else default


@dataclass(eq=False, slots=True)
class Assigned:
    """A setting: the value of an option, a variable or an attribute."""

    name: str
    value: Value
    where: Where


class Step(NamedTuple):
    """A training step that was followed: bytes kept for backward, and FLOPs of the forward pass."""

    saved: float
    flops: float
    complete: bool
    situation: Situation
    convolved: float = 0.0


@dataclass
class Facts:
    """Everything that was seen in a program."""

    imports: list[Import] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    assigned: list[Assigned] = field(default_factory=list)
    options: list[Assigned] = field(default_factory=list)
    """Options of the command line, or their defaults."""

    steps: list[Step] = field(default_factory=list)
    made: list[Value] = field(default_factory=list)
    """Objects that the program made, in order."""

    followed: int = -1
    """How many of them code that is known to run made; the rest come from functions without a known call."""

    doubtful: set[int] = field(default_factory=set)
    """Ids of objects that were made under a condition that could not be decided."""

    switched_off: list[Where] = field(default_factory=list)
    """Lines that use a GPU in branches that a command-line flag would enable."""

    refusals: list[Where] = field(default_factory=list)
    """Lines where the program exits or fails because there is no GPU."""

    notes: list[str] = field(default_factory=list)
