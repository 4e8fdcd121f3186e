"""Sources: the files of a program as they are handed in, and which of their lines is which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from crucible.core.errors import BadInput
from crucible.core.routing.profile import Evidence

MAX_BYTES = 1_000_000
"""Of one file; what is behind is not read, and the profile says so."""

MAX_LINES = 12_000
MAX_LINE = 50_000
"""Characters of a line; a longer one is data that somebody pasted."""

SHOWN = 200
"""Characters of a line that are shown as evidence."""


@dataclass(frozen=True)
class Sources:
    """`files` by their path from the program's folder; `entry` is the one that is started, with `arguments`."""

    files: Mapping[str, bytes]
    entry: str
    arguments: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    """Notes of whoever gathered the files about what he left out."""

    def check(self) -> None:
        """Raises BadInput where there is nothing to start."""
        if self.entry not in self.files:
            raise BadInput(f"{self.entry} is not among the files.", fix="Name one of them as the entry.")

    def module(self, name: str) -> str | None:
        """The file of a local module, looked for beside the entry and at the top, as Python would."""
        path = name.replace(".", "/")
        near = self.entry.rpartition("/")[0]
        for base in dict.fromkeys((f"{near}/" if near else "", "", "src/")):
            for candidate in (f"{base}{path}.py", f"{base}{path}/__init__.py"):
                if candidate in self.files:
                    return candidate
        return None


@dataclass(frozen=True)
class Text:
    """The text of one file to be parsed; `places` tells where its lines come from, if not from `name` itself."""

    name: str
    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()
    places: tuple[tuple[str, int], ...] = field(default=(), repr=False)

    @cached_property
    def whole(self) -> str:
        return "\n".join(self.lines) + "\n"

    def evidence(self, line: int) -> Evidence:
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        file, number = self.places[line - 1] if 0 < line <= len(self.places) else (self.name, line)
        return Evidence(file, number, text.strip()[:SHOWN])


def _whole_statements(lines: list[str]) -> list[str]:
    """Without the last statement, of which the end is cut off."""
    last = next((place for place in range(len(lines) - 1, 0, -1) if lines[place][:1].strip()), len(lines))
    return lines[:last]


def decoded(name: str, data: bytes) -> Text:
    """A file as text, cut to what is read of it. What is no text comes back empty, with a note."""
    notes = []
    if not data.strip():
        usual = name.rpartition("/")[2] == "__init__.py"
        return Text(name, (), () if usual else (f"{name} is empty.",))
    if len(data) > MAX_BYTES:
        data = data[:MAX_BYTES]
        notes.append(f"Of {name} only the first {MAX_BYTES / 1e6:g} MB were read.")
    if b"\0" in data:
        return Text(name, (), (f"{name} is a binary file, no program text.",))
    text = data.decode("utf-8-sig", errors="replace")
    if text.count("\ufffd") > len(text) // 20:
        return Text(name, (), (f"{name} is a binary file, no program text.",))
    if "\ufffd" in text:
        notes.append(f"{name} is not UTF-8 throughout; what is not was skipped.")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", " ").split("\n")
    if max(map(len, lines)) > MAX_LINE:
        lines = ["" if len(line) > MAX_LINE else line for line in lines]
        notes.append(f"Lines of {name} with more than {MAX_LINE:,} characters were left out.")
    if len(lines) > MAX_LINES:
        lines = _whole_statements(lines[:MAX_LINES])
        notes.append(f"Of {name} only the first {MAX_LINES:,} lines were read.")
    return Text(name, tuple(lines), tuple(notes))
