"""The collected facts of a program, indexed for the conclusions, and how a conclusion gets its evidence."""

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
"""Lines of evidence of a conclusion."""


class Settings:
    """Settings by name. The list may still grow: conclusions follow a model again."""

    def __init__(self, rows: list[Assigned]) -> None:
        self._rows = rows
        self._read = 0
        self._found: dict[str, list[Assigned]] = {}

    def called(self, name: str) -> Sequence[Assigned]:
        """Return the settings of this name, in the order of the list."""
        for each in self._rows[self._read :]:
            self._found.setdefault(each.name, []).append(each)
        self._read = len(self._rows)
        return self._found.get(name, ())


@dataclass(frozen=True)
class Seen:
    """The facts of a program, with lookups for the conclusions. Calls come back in program order unless noted."""

    machine: Machine

    @property
    def facts(self) -> Facts:
        """The facts as the machine collected them."""
        return self.machine.facts

    @functools.cached_property
    def _by_path(self) -> dict[str, list[int]]:
        """Indices of the calls of each path. There are few paths, and most conclusions ask for a few of them."""
        found: dict[str, list[int]] = defaultdict(list)
        for index, call in enumerate(self.facts.calls):
            found[call.path].append(index)
        return found

    @functools.cached_property
    def _by_last(self) -> dict[str, list[list[int]]]:
        """Indices of calls by the last part of the path, one list for each full path that ends in it."""
        found: dict[str, list[list[int]]] = defaultdict(list)
        for path, indices in self._by_path.items():
            found[path.rpartition(".")[2]].append(indices)
        return found

    @functools.cached_property
    def _by_keyword(self) -> dict[str, list[int]]:
        """Indices of calls by the names of their keyword arguments."""
        found: dict[str, list[int]] = defaultdict(list)
        for index, call in enumerate(self.facts.calls):
            for name in call.kwargs:
                found[name].append(index)
        return found

    @functools.cached_property
    def results(self) -> list[Call]:
        """The calls that returned an object of a library."""
        return [call for call in self.facts.calls if type(call.result) is Thing]

    def calls(self, *paths: str) -> list[Call]:
        """Return the calls of these full paths: all of the first path, then all of the second, and so on."""
        every = self.facts.calls
        return [every[index] for path in paths for index in self._by_path.get(path, ())]

    def calls_where(
        self,
        fits: Callable[[str], bool],
        keywords: Iterable[str] = (),
        tells: Callable[[Call], bool] | None = None,
    ) -> list[Call]:
        """Return the calls whose path fits, that have one of these keywords, or for which `tells` is true.

        `fits` is asked once for each path, of which there are few; `tells` for every call with arguments.
        """
        rows = [indices for path, indices in self._by_path.items() if fits(path)]
        rows += [indices for name in keywords if (indices := self._by_keyword.get(name))]
        if tells is not None:
            calls = enumerate(self.facts.calls)
            rows.append([index for index, call in calls if (call.args or call.kwargs) and tells(call)])
        return self._at(rows)

    def calls_among(self, paths: Set[str]) -> list[Call]:
        """Return the calls of these full paths."""
        return self._at([self._by_path[path] for path in self._by_path.keys() & paths])

    def calls_under(self, *starts: str) -> list[Call]:
        """Return the calls whose paths begin like this."""
        return self._at([indices for path, indices in self._by_path.items() if path.startswith(starts)])

    def calls_ending(self, *ends: str) -> list[Call]:
        """Return the calls whose paths end like this."""
        return self._at([indices for path, indices in self._by_path.items() if path.endswith(ends)])

    def calls_named(self, *names: str) -> list[Call]:
        """Return the calls whose paths have one of these last parts."""
        return self._at([indices for name in names for indices in self._by_last.get(name, ())])

    def calls_with(self, *keywords: str) -> list[Call]:
        """Return the calls that have one of these keyword arguments."""
        return self._at([indices for name in keywords if (indices := self._by_keyword.get(name))])

    def _at(self, rows: list[list[int]]) -> list[Call]:
        """Return the calls at these indices, each once and in order. Each row is sorted."""
        every = self.facts.calls
        found = rows[0] if len(rows) == 1 else sorted({index for indices in rows for index in indices})
        return [every[index] for index in found]

    @functools.cached_property
    def _settings(self) -> tuple[Settings, ...]:
        """Options, fields of config objects (the last one made first), and variables."""
        fields = [
            Assigned(name, value, each.where)
            for each in reversed(self.facts.made[: self.facts.followed])
            if isinstance(each, Instance) and each.cls.is_dataclass()
            for name, value in each.attrs.items()
        ]
        return Settings(self.facts.options), Settings(fields), Settings(self.facts.assigned)

    def evidence(self, where: Where) -> Evidence | None:
        """Return the line as evidence, or None if its file was not parsed or it has no line."""
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
        """Return a conclusion with a value. Its evidence is the first few of these lines."""
        lines = map(self.evidence, islice(_distinct(wheres), SHOWN))
        return Conclusion(value, confidence, tuple(line for line in lines if line is not None), assumed, why)

    def assume(self, value: T, why: str) -> Conclusion[T]:
        """Return a conclusion with an assumed value, of low confidence."""
        return Conclusion(value, Confidence.LOW, (), True, why)

    def ask(self, question: str, why: str = "") -> Conclusion[T]:
        """Return a conclusion without a value, with the question that would settle it."""
        return Conclusion(None, Confidence.LOW, (), False, why, question)

    def named(self, names: Iterable[str]) -> Iterator[tuple[str, Value, Where]]:
        """Yield the settings of these names, in the order of the names: options, then config fields, then variables.

        The fields of the config that was made last come first.
        """
        for name in names:
            for rows in self._settings:
                for each in rows.called(name):
                    yield name, settled(each.value), each.where


def _distinct(wheres: Iterable[Where]) -> Iterator[Where]:
    """Yield each line once, without NOWHERE."""
    done = {NOWHERE}
    for where in wheres:
        if where not in done:
            done.add(where)
            yield where


def number_named(seen: Seen, names: Iterable[str], low: float = 1, high: float = 1e9) -> tuple[int, Where, str] | None:
    """Return the first setting under one of these names that is a number within the bounds: value, line and name."""
    for name, value, where in seen.named(names):
        if isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high:
            return int(value), where, name
    return None
