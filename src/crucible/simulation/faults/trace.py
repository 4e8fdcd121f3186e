"""The trace of a run: everything that happened, in order. Two runs of a seed have the same trace."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class TraceEntry:
    at: float
    who: str
    what: str

    def __str__(self) -> str:
        return f"{self.at:10.3f}  {self.who:<12} {self.what}"


class Trace:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._hash = hashlib.sha256()
        self.lines: list[TraceEntry] = []

    def __call__(self, who: str, what: str) -> None:
        line = TraceEntry(self._now(), who, what)
        self.lines.append(line)
        self._hash.update(f"{line}\n".encode())

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def last(self, count: int) -> list[str]:
        return [str(line) for line in self.lines[-count:]]
