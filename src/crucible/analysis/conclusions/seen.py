"""Seen: the facts of a program, and how a conclusion is drawn from them with its evidence."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from crucible.analysis.facts import Assigned, Call, Facts
from crucible.analysis.machine import Machine
from crucible.analysis.values import NOWHERE, Instance, Value, Where, settled
from crucible.core.profile import Conclusion, Confidence, Evidence

T = TypeVar("T")
SHOWN = 3
"""Lines of evidence that a conclusion carries."""


@dataclass(frozen=True)
class Seen:
    machine: Machine

    @property
    def facts(self) -> Facts:
        return self.machine.facts

    @functools.cached_property
    def by_path(self) -> dict[str, list[Call]]:
        found: dict[str, list[Call]] = {}
        for call in self.facts.calls:
            found.setdefault(call.path, []).append(call)
        return found

    def calls(self, *paths: str) -> list[Call]:
        """By their full paths; where several are asked for, those of the first path come first."""
        return [call for path in paths for call in self.by_path.get(path, ())]

    def calls_where(self, fits: Callable[[str], bool]) -> list[Call]:
        """By their paths, in the order they were seen. `fits` is asked once for each path, of which there are few."""
        paths = {path for path in self.by_path if fits(path)}
        return [call for call in self.facts.calls if call.path in paths] if paths else []

    @functools.cached_property
    def _fields(self) -> list[Assigned]:
        """Of the objects that only hold settings, the one made last first."""
        return [
            Assigned(name, value, each.where)
            for each in reversed(self.facts.made[: self.facts.followed])
            if isinstance(each, Instance) and each.cls.is_dataclass()
            for name, value in each.attrs.items()
        ]

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
        lines = [self.evidence(where) for where in dict.fromkeys(wheres) if where != NOWHERE][:SHOWN]
        return Conclusion(value, confidence, tuple(line for line in lines if line is not None), assumed, why)

    def assume(self, value: T, why: str) -> Conclusion[T]:
        return Conclusion(value, Confidence.LOW, (), True, why)

    def ask(self, question: str, why: str = "") -> Conclusion[T]:
        return Conclusion(None, Confidence.LOW, (), False, why, question)

    def named(self, names: Iterable[str]) -> Iterator[tuple[str, Value, Where]]:
        """Settings by name, in the order of the names: options before fields of configs before variables."""
        wanted = {name: place for place, name in enumerate(names)}
        found = [
            (wanted[each.name], kind, each)
            for kind, rows in ((0, self.facts.options), (1, self._fields), (2, self.facts.assigned))
            for each in rows
            if each.name in wanted
        ]
        for _, _, each in sorted(found, key=lambda row: row[:2]):
            yield each.name, settled(each.value), each.where


def number_named(seen: Seen, names: Iterable[str], low: float = 1, high: float = 1e9) -> tuple[int, Where, str] | None:
    """The first setting under one of these names that is a sensible number."""
    for name, value, where in seen.named(names):
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
            return int(value), where, name
    return None
