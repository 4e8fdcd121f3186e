"""Facts: what was seen in the code that can run, each with its place.

Of some there is one for each call or assignment. Those have slots and are not frozen: such a one is made in half the
time of a tuple with names, and in a quarter of that of a frozen dataclass. Nobody changes one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from crucible.analysis.values.values import Value, Where


class Guard(NamedTuple):
    """A condition that could not be decided. `gpu`: what is under it runs where there is a GPU, or where not."""

    gpu: bool | None = None
    swept: bool = False
    """No condition on whether it runs: nobody was seen to call this code, or another process goes this way."""

    tried: bool = False
    """None either: it runs, and where that fails the program goes another way."""

    every: int = 1
    """It holds in one round out of so many: `if step % 4 == 0`."""


class Loop(NamedTuple):
    """`length` is how often it goes round, None if that is unknown; `data` where it goes over a loader of data."""

    target: str
    length: int | None
    where: Where
    data: Value = None


@dataclass(eq=False, slots=True)
class Situation:
    """Where and when something was seen.

    Its questions are asked of every call. Most have no guards: those are told without a generator.
    """

    where: Where
    guards: tuple[Guard, ...]
    loops: tuple[Loop, ...]

    @property
    def swept(self) -> bool:
        """In code that nobody was seen to call; all of it comes under that guard first."""
        return bool(self.guards) and self.guards[0].swept

    @property
    def certain(self) -> bool:
        return not self.guards or all(guard.swept or guard.tried for guard in self.guards)

    @property
    def tried(self) -> bool:
        return bool(self.guards) and any(guard.tried for guard in self.guards)

    @property
    def with_gpu(self) -> bool:
        """Seen under a condition that there is a GPU."""
        return any(guard.gpu is True for guard in self.guards)

    @property
    def without_gpu(self) -> bool:
        return bool(self.guards) and any(guard.gpu is False for guard in self.guards)


@dataclass(eq=False, slots=True)
class Import(Situation):
    module: str


@dataclass(eq=False, slots=True)
class Call(Situation):
    """A call of something outside the program. A method of an unknown object has a path like `.cuda`."""

    path: str
    last: str
    """The last part of the path; every conclusion asks for it."""

    args: tuple[Value, ...]
    kwargs: dict[str, Value]
    owner: Value
    result: Value

    def argument(self, place: int, name: str, default: Value = None) -> Value:
        if name in self.kwargs:
            return self.kwargs[name]
        return self.args[place] if 0 <= place < len(self.args) else default


@dataclass(eq=False, slots=True)
class Assigned:
    name: str
    value: Value
    where: Where


class Step(NamedTuple):
    """One training step as it was followed: what backward has to keep, and the work of the forward pass."""

    saved: float
    flops: float
    complete: bool
    situation: Situation
    convolved: float = 0.0


@dataclass
class Facts:
    imports: list[Import] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    assigned: list[Assigned] = field(default_factory=list)
    options: list[Assigned] = field(default_factory=list)
    """What the command line says, or leaves at its default."""

    steps: list[Step] = field(default_factory=list)
    made: list[Value] = field(default_factory=list)
    """Objects of classes, in the order they were made."""

    followed: int = -1
    """How many of them the program itself was seen to make; the rest come from code that nobody was seen to call."""

    doubtful: set[int] = field(default_factory=set)
    """Ids of those that were made under a condition that could not be decided."""

    switched_off: list[Where] = field(default_factory=list)
    """GPU use that a flag of the command line would switch on."""

    refusals: list[Where] = field(default_factory=list)
    """Where the program gives up because there is no GPU."""

    notes: list[str] = field(default_factory=list)
