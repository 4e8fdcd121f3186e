"""Machine: the state of the interpreter. It follows a program the way Python would, with values that may be unknown.

Nothing of the program is run: the machine walks its tree, computes what it can, and notes facts.
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
"""Facts to keep of each kind; more of them add nothing new."""


MAX_SETTINGS = 64
"""Entries of a dict argument to copy: programs change a setting and call again."""


class Flow(enum.Enum):
    """How a block of statements was left."""

    NEXT = enum.auto()
    RETURN = enum.auto()
    BREAK = enum.auto()
    CONTINUE = enum.auto()
    RAISE = enum.auto()


NEXT, RETURN, RAISE = Flow.NEXT, Flow.RETURN, Flow.RAISE
BREAK, CONTINUE = Flow.BREAK, Flow.CONTINUE
"""Bound to plain names: in Python 3.11 an attribute of an enum takes ten times as long, at every statement."""


class Exhausted(Exception):
    """The step limit is reached."""


class Verbs(NamedTuple):
    """Functions that the modules of the interpreter call across: statements contain expressions, expressions call
    functions.
    """

    evaluate: Callable[[Machine, ast.expr | None, Scope], Value]
    execute: Callable[[Machine, Sequence[ast.stmt], Scope], Flow]
    assign: Callable[[Machine, ast.expr, Value, Scope], None]
    call: Callable[[Machine, Value, tuple[Value, ...], dict[str, Value], Scope], Value]
    attribute: Callable[[Machine, Value, str], Value]
    set_attribute: Callable[[Machine, Value, str, Value], None]


@dataclass
class Machine:
    """The state of following one program."""

    verbs: Verbs
    sources: Sources
    limit: int
    """Most steps to take; a step takes a microsecond or two."""

    facts: Facts = field(default_factory=Facts)
    tape: Tape = field(default_factory=Tape)
    trees: dict[str, Tree] = field(default_factory=dict)
    places: dict[str, str | None] = field(default_factory=dict)
    """Files of modules by name, None for libraries. Programs import the same ones again and again."""

    modules: dict[str, Scope] = field(default_factory=dict)
    functions: list[Value] = field(default_factory=list)
    visited: set[int] = field(default_factory=set)
    guards: tuple[Guard, ...] = ()
    loops: tuple[Loop, ...] = ()
    called: dict[int, set[str]] = field(default_factory=dict)
    """Methods called in the body of a loop, by the id of its node."""

    named: dict[int, bool] = field(default_factory=dict)
    """Whether the body of a loop uses its target, by the id of its node, if that was asked."""

    rescued: dict[int, bool] = field(default_factory=dict)
    """Whether a `try` has a fallback that replaces its body, by the id of its node."""

    active: list[int] = field(default_factory=list)
    depth: int = 0
    steps: int = 0
    rounds: int = 0
    """Loops around that are followed once for all rounds, so that sums in them mean nothing."""

    line: Where = NOWHERE

    def evaluate(self, node: ast.expr | None, scope: Scope) -> Value:
        return self.verbs.evaluate(self, node, scope)

    def execute(self, body: Sequence[ast.stmt], scope: Scope) -> Flow:
        """Execute the statements, and return how the block was left."""
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
        """Return the scope for a call made by a library: without names, in the file of the current line."""
        return Scope(self.line[0])

    def situation(self) -> Situation:
        """Return where and under which conditions the current line is."""
        return Situation(self.line, self.guards, self.loops)

    def tree(self, file: str) -> Tree:
        """Return the tree of a file, parsed at first use."""
        if file not in self.trees:
            tree = self.trees[file] = parse_file(self.sources, file)
            self.facts.notes.extend(tree.notes)
        return self.trees[file]

    def note_call(
        self, path: str, args: tuple[Value, ...], kwargs: dict[str, Value], owner: Value, result: Value
    ) -> None:
        """Record a call as a fact."""
        calls = self.facts.calls
        if len(calls) < MAX_CALLS:
            if args and type(args[0]) is dict and len(args[0]) <= MAX_SETTINGS:
                args = (dict(args[0]), *args[1:])
            last = path.rpartition(".")[2]
            calls.append(Call(self.line, self.guards, self.loops, path, last, args, kwargs, owner, result))

    def note_import(self, module: str) -> None:
        """Record an import as a fact."""
        if len(self.facts.imports) < MAX_CALLS:
            self.facts.imports.append(Import(self.line, self.guards, self.loops, module))

    def note_assigned(self, name: str, value: Value) -> None:
        """Record the assignment of a simple value as a fact."""
        if type(value) in PRINTED and len(self.facts.assigned) < MAX_CALLS:
            self.facts.assigned.append(Assigned(name, value, self.line))

    def under(self, guard: Guard) -> Within:
        """Return a context in which facts are noted under this condition."""
        return Within(self, (*self.guards, guard), self.loops)

    def around(self, loop: Loop) -> Within:
        """Return a context in which facts are noted inside this loop."""
        return Within(self, self.guards, (*self.loops, loop))


class Within:
    """A context with these guards and loops; afterwards the previous ones hold again."""

    __slots__ = ("_after", "_before", "_machine")

    def __init__(self, machine: Machine, guards: tuple[Guard, ...], loops: tuple[Loop, ...]) -> None:
        self._machine = machine
        self._before = machine.guards, machine.loops
        self._after = guards, loops

    def __enter__(self) -> None:
        self._machine.guards, self._machine.loops = self._after

    def __exit__(self, *_: object) -> None:
        self._machine.guards, self._machine.loops = self._before
