"""Writing: data on standard output, words for people on standard error, nothing fancy off a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TextIO

from crucible.core.errors import CrucibleError

_BLOCKS = "▁▂▃▄▅▆▇█"


def tell_error(error: CrucibleError, *, as_json: bool, file: TextIO | None = None) -> None:
    """What happened, why, and the fix; or one JSON object with the same."""
    out = file or sys.stderr
    if as_json:
        from crucible.client.problems import error_object

        found = {**error_object(error), "exit_code": error.exit_code}
        print(json.dumps({"error": found}, default=str), file=out)
        return
    print(f"Error: {error.what}", file=out)
    if error.why:
        print(f"  {error.why}", file=out)
    if error.fix:
        print(f"  Fix: {error.fix}", file=out)


class Output:
    """Where a command writes. `quiet` leaves out the words, not the data."""

    def __init__(
        self, *, quiet: bool = False, as_json: bool = False, environ: Mapping[str, str] | None = None
    ) -> None:
        self.quiet = quiet
        self.as_json = as_json
        self._environ = environ or {}

    @property
    def is_terminal(self) -> bool:
        return sys.stdout.isatty()

    @property
    def talks_to_terminal(self) -> bool:
        """Whether a live line may be drawn on standard error."""
        return sys.stderr.isatty() and self._environ.get("TERM") != "dumb"

    @property
    def colours(self) -> bool:
        return self.is_terminal and not self._environ.get("NO_COLOR")

    def data(self, text: str, end: str = "\n") -> None:
        print(text, end=end, flush=True)

    def json(self, value: object) -> None:
        print(json.dumps(value, default=str, ensure_ascii=False), flush=True)

    def say(self, text: str) -> None:
        """Words for a person, who is not there when JSON is asked for."""
        if not self.as_json:
            self.warn(text)

    def warn(self, text: str) -> None:
        """Words that matter to a program's log too; on standard error, so that piped data stays data."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Columns as wide as their widest cell, the last one free."""
        body = [[_one_line(cell) for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(heads, *body, strict=True)]
        for number, row in enumerate([list(heads), *body]):
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            line = "  ".join(cells).rstrip()
            self.data(f"\x1b[1m{line}\x1b[0m" if number == 0 and self.colours else line)

    def fields(self, pairs: Iterable[tuple[str, str | None]]) -> None:
        """Name and value, one a line; those without a value are left out."""
        known = [(name, value) for name, value in pairs if value]
        width = max((len(name) for name, _ in known), default=0)
        for name, value in known:
            self.data(f"{name.ljust(width)}  {value}")


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """The values as a row of blocks, averaged down to `width`."""
    if not values:
        return ""
    cells = _averaged(values, width)
    low, high = min(cells), max(cells)
    if high == low:
        return _BLOCKS[3] * len(cells)
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round((value - low) / (high - low) * top)] for value in cells)


def _averaged(values: Sequence[float], width: int) -> list[float]:
    if len(values) <= width:
        return list(values)
    edges = [round(index * len(values) / width) for index in range(width + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]


def _one_line(text: str) -> str:
    """No control characters: a name must not move the cursor."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
