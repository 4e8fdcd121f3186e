"""Output of commands: data to standard output, messages to standard error; colours and cutting only on a terminal.

Everything a command prints passes here and is escaped: much of it was written by other users and by programs.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Generic, Protocol, TextIO, TypeVar

import typer

from crucible.cli.output.escape import ProgramText, escape_block, escape_json, escape_line
from crucible.core.errors import CrucibleError


class JsonView(Protocol):
    def as_json(self) -> dict[str, object]: ...


V = TypeVar("V", bound=JsonView)

_BLOCKS = "▁▂▃▄▅▆▇█"


def print_error(error: CrucibleError, *, as_json: bool, file: TextIO | None = None) -> None:
    """Print what happened, why, and the fix; or one JSON object with the same."""
    out = file or sys.stderr
    if as_json:
        from crucible.client.transport.problems import error_object

        fields = {**error_object(error), "exit_code": error.exit_code}
        print(escape_json(json.dumps({"error": fields}, default=str)), file=out)
        return
    print(escape_block(f"Error: {error.what}"), file=out)
    if error.why:
        print(textwrap.indent(escape_block(error.why), "  "), file=out)
    if error.fix:
        print(textwrap.indent(escape_block(f"Fix: {error.fix}"), "  "), file=out)


def print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error that nothing caught, for sys.excepthook."""
    sys.stderr.write(escape_block("".join(traceback.format_exception(kind, error, trace))))


@dataclass(frozen=True)
class ListFormat(Generic[V]):
    """How to list views of one kind: the table's heads and rows, the name for `--quiet`, the text for an empty list."""

    heads: tuple[str, ...]
    row: Callable[[V], Sequence[str]]
    name: Callable[[V], str]
    empty: str = ""


class Output:
    """Where a command writes. `quiet` drops messages, not data."""

    def __init__(self, *, quiet: bool = False, as_json: bool = False, environ: Mapping[str, str] | None = None) -> None:
        self.quiet = quiet
        self.as_json = as_json
        self._environ = environ or {}
        self._program = {"stdout": ProgramText(), "stderr": ProgramText()}

    @property
    def is_terminal(self) -> bool:
        return sys.stdout.isatty()

    @property
    def can_draw_live_line(self) -> bool:
        """Whether standard error is a terminal that can redraw a line."""
        return sys.stderr.isatty() and self._environ.get("TERM") != "dumb"

    @property
    def colours(self) -> bool:
        return self.is_terminal and not self._environ.get("NO_COLOR")

    def data(self, text: str, end: str = "\n") -> None:
        print(escape_block(text), end=end, flush=True)

    def json(self, value: object) -> None:
        print(escape_json(json.dumps(value, default=str, ensure_ascii=False)), flush=True)

    def program_output(self, text: str) -> None:
        """Print what a job's program wrote: byte for byte, but on a terminal without what could command it."""
        self._write_program("stdout", text)

    def program_notice(self, text: str) -> None:
        """Print Crucible's own lines of a job's log, to standard error."""
        if not self.quiet:
            self._write_program("stderr", text)

    def _write_program(self, name: str, text: str) -> None:
        stream: TextIO = getattr(sys, name)
        stream.write(self._program[name].feed(text) if stream.isatty() else text)
        stream.flush()

    def say(self, text: str) -> None:
        """Print a message for a person; nothing with `--json`."""
        if not self.as_json:
            self.warn(text)

    def warn(self, text: str) -> None:
        """Print a message, with `--json` too; to standard error, so that piped data stays data."""
        if not self.quiet:
            self.instruct(text)

    def instruct(self, text: str) -> None:
        """Print what the user has to do to go on, with `--quiet` too."""
        print(escape_block(text), file=sys.stderr, flush=True)

    def confirm(self, question: str) -> bool:
        return typer.confirm(escape_line(question), err=True)

    def say_indented(self, text: str) -> None:
        """Print a long message indented, wrapped at the terminal's width."""
        for line in text.splitlines():
            self.say("\n".join(_wrap(line, self._width(sys.stderr), "  ")))

    def _width(self, stream: TextIO) -> int | None:
        """Return the terminal's columns; None without a terminal, where nothing is wrapped or cut."""
        return shutil.get_terminal_size().columns if stream.isatty() else None

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print a table with columns as wide as their widest cell; on a terminal the widest are cut to fit."""
        lines = [[escape_line(cell) for cell in row] for row in (heads, *rows)]
        widest = [max(map(len, column)) for column in zip(*lines, strict=True)]
        room = self._width(sys.stdout)
        widths = widest if room is None else fit_widths(widest, room)
        for number, row in enumerate(lines):
            cells = [_truncate(cell, width).ljust(width) for cell, width in zip(row, widths, strict=True)]
            line = "  ".join(cells).rstrip()
            line = line if room is None else _truncate(line, room)
            print(f"\x1b[1m{line}\x1b[0m" if number == 0 and self.colours else line, flush=True)

    def print_list(self, views: Sequence[V], format: ListFormat[V], **more: object) -> None:
        """Print views as JSON (with `more` next to `items`), as names with `--quiet`, else as a table."""
        if self.as_json:
            self.json({**more, "items": [view.as_json() for view in views]})
        elif self.quiet:
            for view in views:
                self.data(escape_line(format.name(view)))
        elif not views and format.empty:
            self.say(format.empty)
        else:
            self.table(format.heads, map(format.row, views))

    def fields(self, pairs: Iterable[tuple[str, str | Sequence[str] | None]]) -> None:
        """Print one name and value per line, skipping empty values; a long value wraps below itself.

        A text is one line. Of several texts each starts on a line of its own, and may have more, further indented.
        """
        known = [(name, blocks) for name, value in pairs if (blocks := _field_lines(value))]
        width = max((len(name) for name, _ in known), default=0) + 2
        for name, blocks in known:
            lines = [part for line in blocks for part in self._under(line, width)]
            print("\n".join((name.ljust(width) + lines[0].lstrip(), *lines[1:])), flush=True)

    def _under(self, line: str, width: int) -> list[str]:
        return _wrap(line, self._width(sys.stdout), " " * width)


def _field_lines(value: str | Sequence[str] | None) -> list[str]:
    if isinstance(value, str):
        return [escape_line(value)] if value else []
    return [line for text in value or () if text for line in escape_block(text).replace("\n", "\n  ").split("\n")]


_NARROWEST = 6


def fit_widths(widths: Sequence[int], room: int) -> list[int]:
    """Shrink the widest columns until all fit into `room` with two blanks between; never the first column."""
    fitted = list(widths)
    while sum(fitted) + 2 * (len(fitted) - 1) > room:
        widest = max(range(1, len(fitted)), key=lambda index: fitted[index], default=0)
        if widest == 0 or fitted[widest] <= _NARROWEST:
            break
        fitted[widest] -= 1
    return fitted


def _truncate(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _wrap(line: str, room: int | None, indent: str) -> list[str]:
    """Wrap the line behind `indent`, keeping its own indentation for the continuation."""
    own = indent + line[: len(line) - len(line.lstrip())]
    if room is None or len(indent) + 20 > room:
        return [indent + line]
    lines = textwrap.wrap(
        line.strip(), room, initial_indent=own, subsequent_indent=own, break_long_words=False, break_on_hyphens=False
    )
    return lines or [""]


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Draw the values as a row of blocks, averaged down to `width`."""
    if not values:
        return ""
    cells = _average_down(values, width)
    low, high = min(cells), max(cells)
    if high == low:
        return _BLOCKS[3] * len(cells)
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round((value - low) / (high - low) * top)] for value in cells)


def _average_down(values: Sequence[float], width: int) -> list[float]:
    if len(values) <= width:
        return list(values)
    edges = [round(index * len(values) / width) for index in range(width + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
