"""Seen: the facts of a program, and how a conclusion is drawn from them with its evidence."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.values.facts import Assigned, Call, Facts
from crucible.analysis.values.values import NOWHERE, Instance, Thing, Value, Where, settled
from crucible.core.routing.profile import Conclusion, Confidence, Evidence

T = TypeVar("T")
SHOWN = 3
"""Lines of evidence that a conclusion carries."""


class Settings:
    """Settings by name, of a list that may still grow: a model is followed again while conclusions are drawn."""

    def __init__(self, rows: list[Assigned]) -> None:
        self._rows = rows
        self._read = 0
        self._found: dict[str, list[Assigned]] = {}

    def called(self, name: str) -> Sequence[Assigned]:
        """In the order of the list."""
        for each in self._rows[self._read :]:
            self._found.setdefault(each.name, []).append(each)
        self._read = len(self._rows)
        return self._found.get(name, ())


@dataclass(frozen=True)
class Seen:
    machine: Machine

    @property
    def facts(self) -> Facts:
        return self.machine.facts

    @functools.cached_property
    def _by_path(self) -> dict[str, list[int]]:
        """Where the calls of each path stand among all. Most conclusions ask for a few paths, of few that there are."""
        found: dict[str, list[int]] = defaultdict(list)
        for place, call in enumerate(self.facts.calls):
            found[call.path].append(place)
        return found

    @functools.cached_property
    def _by_last(self) -> dict[str, list[list[int]]]:
        """The same by the last part of the path, with a row for each path that ends so."""
        found: dict[str, list[list[int]]] = defaultdict(list)
        for path, places in self._by_path.items():
            found[path.rpartition(".")[2]].append(places)
        return found

    @functools.cached_property
    def _by_keyword(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for place, call in enumerate(self.facts.calls):
            for name in call.kwargs:
                found[name].append(place)
        return found

    @functools.cached_property
    def results(self) -> list[Call]:
        """The calls that gave an object of a library, in the order they were seen."""
        return [call for call in self.facts.calls if type(call.result) is Thing]

    def calls(self, *paths: str) -> list[Call]:
        """By their full paths; where several are asked for, those of the first path come first."""
        every = self.facts.calls
        return [every[place] for path in paths for place in self._by_path.get(path, ())]

    def calls_where(
        self,
        fits: Callable[[str], bool],
        keywords: Iterable[str] = (),
        tells: Callable[[Call], bool] | None = None,
    ) -> list[Call]:
        """In the order they were seen, those whose path fits, or that have one of these keywords, or that tell.

        `fits` is asked once for each path, of which there are few; `tells` of every call that was given something.
        """
        rows = [places for path, places in self._by_path.items() if fits(path)]
        rows += [places for name in keywords if (places := self._by_keyword.get(name))]
        if tells is not None:
            given = enumerate(self.facts.calls)
            rows.append([place for place, call in given if (call.args or call.kwargs) and tells(call)])
        return self._at(rows)

    def calls_among(self, paths: Set[str]) -> list[Call]:
        """By their full paths, in the order they were seen."""
        return self._at([self._by_path[path] for path in self._by_path.keys() & paths])

    def calls_under(self, *starts: str) -> list[Call]:
        """By how their paths begin, in the order they were seen."""
        return self._at([places for path, places in self._by_path.items() if path.startswith(starts)])

    def calls_ending(self, *ends: str) -> list[Call]:
        """By how their paths end, in the order they were seen."""
        return self._at([places for path, places in self._by_path.items() if path.endswith(ends)])

    def calls_named(self, *names: str) -> list[Call]:
        """By the last part of their paths, in the order they were seen."""
        return self._at([places for name in names for places in self._by_last.get(name, ())])

    def calls_with(self, *keywords: str) -> list[Call]:
        """By the keywords they have, in the order they were seen."""
        return self._at([places for name in keywords if (places := self._by_keyword.get(name))])

    def _at(self, rows: list[list[int]]) -> list[Call]:
        """The calls at these places, each once and in order; a row is in order itself."""
        every = self.facts.calls
        found = rows[0] if len(rows) == 1 else sorted({place for places in rows for place in places})
        return [every[place] for place in found]

    @functools.cached_property
    def _settings(self) -> tuple[Settings, ...]:
        fields = [
            Assigned(name, value, each.where)
            for each in reversed(self.facts.made[: self.facts.followed])
            if isinstance(each, Instance) and each.cls.is_dataclass()
            for name, value in each.attrs.items()
        ]
        return Settings(self.facts.options), Settings(fields), Settings(self.facts.assigned)

    def evidence(self, where: Where) -> Evidence | None:
        tree = self.machine.trees.get(where[0])
        return tree.text.evidence(where[1]) if tree is not None and where[1] > 0 else None

    def say(
        self,
        value: T,
        wheres: Iterable[Where] = (),
        confidence: Confidence = Confidence.HIGH,
        why: str = "",
        assumed: bool = False,
    ) -> Conclusion[T]:
        """`wheres` are gone through as far as lines are shown."""
        lines = map(self.evidence, islice(_distinct(wheres), SHOWN))
        return Conclusion(value, confidence, tuple(line for line in lines if line is not None), assumed, why)

    def assume(self, value: T, why: str) -> Conclusion[T]:
        return Conclusion(value, Confidence.LOW, (), True, why)

    def ask(self, question: str, why: str = "") -> Conclusion[T]:
        return Conclusion(None, Confidence.LOW, (), False, why, question)

    def named(self, names: Iterable[str]) -> Iterator[tuple[str, Value, Where]]:
        """Settings by name, in the order of the names: options before fields of configs before variables.

        Of several configs the fields of the one made last come first.
        """
        for name in names:
            for rows in self._settings:
                for each in rows.called(name):
                    yield name, settled(each.value), each.where


def _distinct(wheres: Iterable[Where]) -> Iterator[Where]:
    done = {NOWHERE}
    for where in wheres:
        if where not in done:
            done.add(where)
            yield where


def number_named(seen: Seen, names: Iterable[str], low: float = 1, high: float = 1e9) -> tuple[int, Where, str] | None:
    """The first setting under one of these names that is a sensible number."""
    for name, value, where in seen.named(names):
        if isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high:
            return int(value), where, name
    return None
