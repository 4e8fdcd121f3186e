"""Machine: the state of one reading. It follows a program the way Python would, with values that may be unknown.

Nothing of the program is run: the machine walks its tree, does the sums it can do, and writes down what it saw.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from crucible.analysis.source.sources import Sources
from crucible.analysis.source.trees import Tree, parse_file
from crucible.analysis.values.autograd import Tape
from crucible.analysis.values.facts import Assigned, Call, Facts, Guard, Import, Loop, Situation
from crucible.analysis.values.scope import Scope
from crucible.analysis.values.values import NOWHERE, PRINTED, Value, Where

MAX_CALLS = 3_000
"""Facts of each kind that are kept; a program with more says nothing new."""


MAX_SETTINGS = 64
"""Entries of a dict that is kept as a call was given it: programs change a setting and call again."""


class Flow(enum.Enum):
    """How a block of statements was left."""

    NEXT = enum.auto()
    RETURN = enum.auto()
    BREAK = enum.auto()
    CONTINUE = enum.auto()
    RAISE = enum.auto()


NEXT, RETURN, RAISE = Flow.NEXT, Flow.RETURN, Flow.RAISE
BREAK, CONTINUE = Flow.BREAK, Flow.CONTINUE
"""The same by plain names: Python 3.11 takes ten times as long to ask the class for one, at every statement."""


class Exhausted(Exception):
    """The work allowed is used up."""


class Verbs(NamedTuple):
    """What following one kind of code asks of the others: statements hold expressions, expressions call functions."""

    evaluate: Callable[[Machine, ast.expr | None, Scope], Value]
    execute: Callable[[Machine, Sequence[ast.stmt], Scope], Flow]
    assign: Callable[[Machine, ast.expr, Value, Scope], None]
    call: Callable[[Machine, Value, tuple[Value, ...], dict[str, Value], Scope], Value]
    attribute: Callable[[Machine, Value, str], Value]
    set_attribute: Callable[[Machine, Value, str, Value], None]


@dataclass
class Machine:
    verbs: Verbs
    sources: Sources
    limit: int
    """Steps that may be taken; one is about a microsecond or two."""

    facts: Facts = field(default_factory=Facts)
    tape: Tape = field(default_factory=Tape)
    trees: dict[str, Tree] = field(default_factory=dict)
    places: dict[str, str | None] = field(default_factory=dict)
    """The files of modules by their names, None for those of libraries: programs import the same ones over and over."""

    modules: dict[str, Scope] = field(default_factory=dict)
    functions: list[Value] = field(default_factory=list)
    visited: set[int] = field(default_factory=set)
    guards: tuple[Guard, ...] = ()
    loops: tuple[Loop, ...] = ()
    called: dict[int, set[str]] = field(default_factory=dict)
    """The methods that the bodies of loops call, by the loop."""

    named: dict[int, bool] = field(default_factory=dict)
    """Whether they name what the loop counts with, where that was asked."""

    rescued: dict[int, bool] = field(default_factory=dict)
    """Whether a `try` goes another way where it fails, by the `try`."""

    active: list[int] = field(default_factory=list)
    depth: int = 0
    steps: int = 0
    rounds: int = 0
    """Loops being gone through once for all rounds, whose sums therefore mean nothing."""

    line: Where = NOWHERE

    def evaluate(self, node: ast.expr | None, scope: Scope) -> Value:
        return self.verbs.evaluate(self, node, scope)

    def execute(self, body: Sequence[ast.stmt], scope: Scope) -> Flow:
        """Follows the statements; says how the block was left."""
        return self.verbs.execute(self, body, scope)

    def assign(self, target: ast.expr, value: Value, scope: Scope) -> None:
        self.verbs.assign(self, target, value, scope)

    def call(self, function: Value, args: tuple[Value, ...], kwargs: dict[str, Value], scope: Scope) -> Value:
        return self.verbs.call(self, function, args, kwargs, scope)

    def attribute(self, value: Value, name: str) -> Value:
        return self.verbs.attribute(self, value, name)

    def set_attribute(self, owner: Value, name: str, value: Value) -> None:
        self.verbs.set_attribute(self, owner, name, value)

    def nowhere(self) -> Scope:
        """For a call that is made by a library: it sees no names, only the file it is made from."""
        return Scope(self.line[0])

    def situation(self) -> Situation:
        return Situation(self.line, self.guards, self.loops)

    def tree(self, file: str) -> Tree:
        if file not in self.trees:
            tree = self.trees[file] = parse_file(self.sources, file)
            self.facts.notes.extend(tree.notes)
        return self.trees[file]

    def note_call(
        self, path: str, args: tuple[Value, ...], kwargs: dict[str, Value], owner: Value, result: Value
    ) -> None:
        calls = self.facts.calls
        if len(calls) < MAX_CALLS:
            if args and type(args[0]) is dict and len(args[0]) <= MAX_SETTINGS:
                args = (dict(args[0]), *args[1:])
            last = path.rpartition(".")[2]
            calls.append(Call(self.line, self.guards, self.loops, path, last, args, kwargs, owner, result))

    def note_import(self, module: str) -> None:
        if len(self.facts.imports) < MAX_CALLS:
            self.facts.imports.append(Import(self.line, self.guards, self.loops, module))

    def note_assigned(self, name: str, value: Value) -> None:
        if type(value) in PRINTED and len(self.facts.assigned) < MAX_CALLS:
            self.facts.assigned.append(Assigned(name, value, self.line))

    def under(self, guard: Guard) -> Within:
        """What happens inside is seen under this condition."""
        return Within(self, (*self.guards, guard), self.loops)

    def around(self, loop: Loop) -> Within:
        return Within(self, self.guards, (*self.loops, loop))


class Within:
    """A stretch of a program under these conditions and in these loops; afterwards all is as it was."""

    __slots__ = ("_after", "_before", "_machine")

    def __init__(self, machine: Machine, guards: tuple[Guard, ...], loops: tuple[Loop, ...]) -> None:
        self._machine = machine
        self._before = machine.guards, machine.loops
        self._after = guards, loops

    def __enter__(self) -> None:
        self._machine.guards, self._machine.loops = self._after

    def __exit__(self, *_: object) -> None:
        self._machine.guards, self._machine.loops = self._before
