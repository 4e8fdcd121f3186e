"""Moves: what a step did to the job, to its attempt and to its machines, in the words of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from tests.core.lifecycle.allowed import ANY, ATTEMPTS, JOBS, MACHINES, Rule

from crucible.core.lifecycle import Attempt, Fact, Machine, Step, World
from crucible.core.lifecycle.facts import MachineFact
from crucible.core.lifecycle.machines import MachineStep

NONE = "none"
Path = tuple[str, ...]
"""The names of where it began and of the acts since."""


@dataclass(frozen=True)
class Move:
    """`noted`: something changed, be it only what is written down."""

    state: str
    fact: str
    becomes: str
    events: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    why: str = ""
    noted: bool = True

    def __str__(self) -> str:
        told = ", ".join((*self.events, *self.effects, *filter(None, [self.why])))
        return f"{self.state} + {self.fact} -> {self.becomes}" + (f" ({told})" if told else "")


def job_move(before: World, fact: Fact, step: Step) -> Move:
    return Move(
        before.job.state.value,
        type(fact).__name__,
        step.world.job.state.value,
        tuple(event.type for event in step.events),
        tuple(dict.fromkeys(effect.kind.value for effect in step.effects)),
        noted=bool(step.events or step.effects or step.touched) or _changed(before, step.world),
    )


def _changed(before: World, after: World) -> bool:
    """When to look again is no part of a job's state."""
    return after is not before and replace(after, job=replace(after.job, due_at=before.job.due_at)) != before


def attempt_move(before: World, fact: Fact, step: Step) -> Move:
    """Of the live attempt, or of the one that this fact began."""
    was = before.live
    now = next((a for a in step.world.attempts if a.id == was.id), None) if was else step.world.live
    return Move(
        was.state.value if was else NONE,
        type(fact).__name__,
        now.state.value if now else NONE,
        why=_why(was, now),
        noted=was != now,
    )


def _why(was: Attempt | None, now: Attempt | None) -> str:
    changed = now is not None and now.reason is not None and (was is None or was.state is not now.state)
    return now.reason.value if changed and now and now.reason else ""


def machine_move(before: Machine, fact: MachineFact, step: MachineStep) -> Move:
    after, effects = step.machine, tuple(effect.kind.value for effect in step.effects)
    noted = after != before or bool(effects)
    return Move(before.state.value, type(fact).__name__, after.state.value, effects=effects, noted=noted)


@dataclass
class Book:
    """One table, and what of it was seen. `paths`: how each move was come to first."""

    rules: tuple[Rule, ...]
    paths: dict[Move, Path] = field(default_factory=dict)
    strange: dict[Move, Path] = field(default_factory=dict)
    _seen: dict[Rule, list[Move]] = field(default_factory=dict)

    def note(self, move: Move, path: Callable[[], Path]) -> None:
        """`path` is asked for a move that was not seen before."""
        if move in self.paths:
            return
        self.paths[move] = path()
        rule = rule_for(self.rules, move)
        if rule is not None:
            self._seen.setdefault(rule, []).append(move)
        elif move.noted:
            self.strange[move] = path()

    @property
    def reached(self) -> int:
        return sum(any(move.noted for move in moves) for moves in self._seen.values())

    def surprises(self) -> list[str]:
        """What happened and no row allows, with the way there."""
        return [f"{move}, by {' > '.join(path)}" for move, path in self.strange.items()]

    def missing(self) -> list[str]:
        """Rows, and words of rows, that were never seen."""
        return [lack for rule in self.rules for lack in _lacks(rule, self._seen.get(rule, []))]

    def lacks(self, move: Move) -> bool:
        """Whether it would show something of its row that was never seen."""
        rule = rule_for(self.rules, move)
        if rule is None:
            return False
        moves = self._seen.get(rule, [])
        unseen = not any(known.noted for known in moves)
        return unseen or not set(_lacks(rule, moves)) <= set(_lacks(rule, [*moves, move]))


def _lacks(rule: Rule, moves: list[Move]) -> Iterator[str]:
    name = f"{rule.state} + {rule.fact} -> {rule.becomes}"
    if not any(move.noted for move in moves):
        yield f"{name}: never"
        return
    for word in (*rule.events, *rule.effects, *rule.why):
        with_it = [_bare(word) in (*move.events, *move.effects, move.why) for move in moves]
        if not any(with_it):
            yield f"{name}: never with {_bare(word)}"
        elif word.endswith("?") and all(with_it):
            yield f"{name}: never without {_bare(word)}"


def rule_for(rules: Iterable[Rule], move: Move) -> Rule | None:
    exact = (rule for rule in rules if rule.fact == move.fact and _fits(rule, move))
    return next(exact, None) or next((rule for rule in rules if rule.fact == ANY and _fits(rule, move)), None)


def _fits(rule: Rule, move: Move) -> bool:
    if (rule.state, rule.becomes) != (move.state, move.becomes):
        return False
    said = not rule.why or not move.why or move.why in rule.why
    return said and _told(rule.events, move.events) and _told(rule.effects, move.effects)


def _told(words: tuple[str, ...], told: tuple[str, ...]) -> bool:
    """Whether these came, in this order, with every word that comes always."""
    known = [_bare(word) for word in words]
    if any(word not in known for word in told):
        return False
    in_order = list(told) == sorted(told, key=known.index)
    return in_order and all(word in told for word in words if not word.endswith("?"))


def _bare(word: str) -> str:
    return word.removesuffix("?")


@dataclass
class Books:
    """The three tables, kept while something is walked or told."""

    jobs: Book = field(default_factory=lambda: Book(JOBS))
    attempts: Book = field(default_factory=lambda: Book(ATTEMPTS))
    machines: Book = field(default_factory=lambda: Book(MACHINES))

    def told(self, before: World, fact: Fact, step: Step, path: Callable[[], Path]) -> None:
        self.jobs.note(job_move(before, fact, step), path)
        self.attempts.note(attempt_move(before, fact, step), path)

    def shown(self, before: Machine, fact: MachineFact, step: MachineStep, path: Callable[[], Path]) -> None:
        self.machines.note(machine_move(before, fact, step), path)

    @property
    def all(self) -> tuple[Book, Book, Book]:
        return self.jobs, self.attempts, self.machines

    def surprises(self) -> list[str]:
        return [line for book in self.all for line in book.surprises()]

    def missing(self) -> list[str]:
        return [line for book in self.all for line in book.missing()]
