"""The files of a program as they are handed in, and the text of a file with the origin of each line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from crucible.core.errors import BadInput
from crucible.core.routing.profile import Evidence

MAX_BYTES = 1_000_000
"""Of one file; the rest is not read, and the profile says so."""

MAX_LINES = 12_000
MAX_LINE = 50_000
"""Characters of a line; a longer one is pasted data."""

SHOWN = 200
"""Characters of a line to show as evidence."""


@dataclass(frozen=True)
class Sources:
    """Files by their path from the program's folder. `entry` is the file to start, with `arguments`."""

    files: Mapping[str, bytes]
    entry: str
    arguments: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    """Notes of the caller that collected the files, on what it left out."""

    def check(self) -> None:
        """Raise BadInput if the entry is not among the files."""
        if self.entry not in self.files:
            raise BadInput(f"{self.entry} is not among the files.", fix="Name one of them as the entry.")

    def module(self, name: str) -> str | None:
        """Return the file of a local module, or None. Searches beside the entry, then at the top, as Python does."""
        path = name.replace(".", "/")
        near = self.entry.rpartition("/")[0]
        for base in dict.fromkeys((f"{near}/" if near else "", "", "src/")):
            for candidate in (f"{base}{path}.py", f"{base}{path}/__init__.py"):
                if candidate in self.files:
                    return candidate
        return None


@dataclass(frozen=True)
class Text:
    """The text of one file. `origins` has the file and line of each text line where it is not from `name` itself."""

    name: str
    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()
    origins: tuple[tuple[str, int], ...] = field(default=(), repr=False)

    @cached_property
    def whole(self) -> str:
        """The whole text; it ends with a newline."""
        return "\n".join(self.lines) + "\n"

    def evidence(self, line: int) -> Evidence:
        """Return the line as evidence, with the file and line number it comes from."""
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        file, number = self.origins[line - 1] if 0 < line <= len(self.origins) else (self.name, line)
        return Evidence(file, number, text.strip()[:SHOWN])


def _whole_statements(lines: list[str]) -> list[str]:
    """Return the lines without the last unindented statement, whose end was cut off."""
    last = next((line for line in range(len(lines) - 1, 0, -1) if lines[line][:1].strip()), len(lines))
    return lines[:last]


def decode(name: str, data: bytes) -> Text:
    """Return a file as text, cut to the limits. A file that is not text comes back without lines, with a note."""
    notes = []
    if not data.strip():
        usual = name.rpartition("/")[2] == "__init__.py"
        return Text(name, (), () if usual else (f"{name} is empty.",))
    if len(data) > MAX_BYTES:
        data = data[:MAX_BYTES]
        notes.append(f"Only the first {MAX_BYTES / 1e6:g} MB of {name} were read.")
    if b"\0" in data:
        return Text(name, (), (f"{name} is a binary file, not program text.",))
    text = data.decode("utf-8-sig", errors="replace")
    if text.count("\ufffd") > len(text) // 20:
        return Text(name, (), (f"{name} is a binary file, not program text.",))
    if "\ufffd" in text:
        notes.append(f"{name} is not UTF-8 throughout; invalid bytes were skipped.")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", " ").split("\n")
    if max(map(len, lines)) > MAX_LINE:
        lines = ["" if len(line) > MAX_LINE else line for line in lines]
        notes.append(f"Lines of {name} with more than {MAX_LINE:,} characters were left out.")
    if len(lines) > MAX_LINES:
        lines = _whole_statements(lines[:MAX_LINES])
        notes.append(f"Only the first {MAX_LINES:,} lines of {name} were read.")
    return Text(name, tuple(lines), tuple(notes))
