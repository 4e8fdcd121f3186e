"""Telling a program's own output from Crucible's lines in the same log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

MARK = "[crucible] "
"""What lines begin with that Crucible writes into a job's log: how its environment is built, what was cut."""


class Piece(NamedTuple):
    text: str
    ours: bool


class Splitter:
    """Text in as it comes, pieces out. At most the beginning of a line is held back, until it can be told."""

    def __init__(self) -> None:
        self._held = ""
        self._ours: bool | None = None
        """Whose the present line is; None at its beginning."""

    def feed(self, text: str) -> Iterator[Piece]:
        text, self._held = self._held + text, ""
        for part in _lines(text):
            if self._ours is None and _undecided(part):
                self._held = part
                return
            if self._ours is None:
                self._ours = part.startswith(MARK)
            yield Piece(part, self._ours)
            if part.endswith("\n"):
                self._ours = None

    def finish(self) -> Iterator[Piece]:
        """What is left of a last line."""
        if self._held:
            yield Piece(self._held, False)
        self._held, self._ours = "", None


def _lines(text: str) -> list[str]:
    """Lines with their ends; other than str.splitlines, only a newline ends one."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def _undecided(part: str) -> bool:
    return len(part) < len(MARK) and MARK.startswith(part)
