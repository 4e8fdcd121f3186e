"""Display of a followed job: a live line on a terminal, plain text elsewhere, nothing with JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from crucible.cli.output.escape import ProgramText, escape_block, escape_line, last_state
from crucible.cli.output.format import format_job_cost, format_progress, run_seconds
from crucible.cli.output.output import Output
from crucible.core.compute.resources import format_duration
from crucible.core.views.jobs import JobView, ProgressView

if TYPE_CHECKING:
    from rich.live import Live

CRUCIBLE_PREFIX = "[crucible] "
"""Prefix of the lines Crucible itself writes into a job's log, such as how the environment is built."""


class LogSegment(NamedTuple):
    text: str
    from_crucible: bool


class LogSplitter:
    """Splits a log stream into the program's output and Crucible's lines.

    Holds back at most the start of a line, while it may still become the prefix.
    """

    def __init__(self) -> None:
        self._held = ""
        self._ours: bool | None = None
        """Whether the current line is Crucible's; None at its start."""

    def feed(self, text: str) -> Iterator[LogSegment]:
        text, self._held = self._held + text, ""
        for part in _lines(text):
            if self._ours is None and _may_be_prefix(part):
                self._held = part
                return
            if self._ours is None:
                self._ours = part.startswith(CRUCIBLE_PREFIX)
            yield LogSegment(part, self._ours)
            if part.endswith("\n"):
                self._ours = None

    def finish(self) -> Iterator[LogSegment]:
        """Yield what is held back of the last line."""
        if self._held:
            yield LogSegment(self._held, False)
        self._held, self._ours = "", None


def _lines(text: str) -> list[str]:
    """Split into lines with their ends. Unlike str.splitlines, only a newline ends a line: a bar redraws with `\\r`."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def _may_be_prefix(part: str) -> bool:
    return len(part) < len(CRUCIBLE_PREFIX) and CRUCIBLE_PREFIX.startswith(part)


class Screen(Protocol):
    def write_output(self, text: str) -> None: ...

    def write_notice(self, text: str) -> None: ...

    def update_status(self, job: JobView, progress: ProgressView | None) -> None: ...


class PlainScreen:
    """Prints the program's output to standard output, Crucible's lines to standard error."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._splitter = LogSplitter()

    def write_output(self, text: str) -> None:
        for piece in self._splitter.feed(text):
            write_segment(self._out, piece)

    def write_notice(self, text: str) -> None:
        self._out.say(text)

    def update_status(self, job: JobView, progress: ProgressView | None) -> None:
        return None

    def finish(self) -> None:
        for piece in self._splitter.finish():
            write_segment(self._out, piece)


class LiveScreen:
    """One status line at the bottom of the terminal; output and notices scroll above it."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._program = ProgramText()
        self._splitter = LogSplitter()
        self._rest = ""
        self._job: JobView | None = None
        self._seen_at = 0.0

    def write_output(self, text: str) -> None:
        for piece in self._splitter.feed(text):
            self._show(piece)

    def write_notice(self, text: str) -> None:
        self._live.console.print(escape_block(text), markup=False, highlight=False, style="dim")

    def update_status(self, job: JobView, progress: ProgressView | None) -> None:
        from rich.text import Text

        if job is not self._job:
            self._job, self._seen_at = job, time.monotonic()
        waiting = f"waiting: {job.waiting}" if job.is_queued and job.waiting else ""
        parts = [
            f"{job.display_name} {job.phase}",
            waiting,
            format_progress(progress),
            format_job_cost(job),
            self._ran(job),
        ]
        line = escape_line(" · ".join(part for part in parts if part))
        self._live.update(Text(line, overflow="ellipsis", no_wrap=True))

    def finish(self) -> None:
        for piece in self._splitter.finish():
            self._show(piece)
        if self._rest:
            self._print(self._rest)
            self._rest = ""

    def _ran(self, job: JobView) -> str:
        """Return the run time, counted on from the server's last value."""
        seconds = run_seconds(job)
        if seconds is None:
            return ""
        ticking = job.ran_seconds is not None and job.phase == "running"
        return format_duration(seconds + (time.monotonic() - self._seen_at if ticking else 0.0))

    def _show(self, piece: LogSegment) -> None:
        if piece.from_crucible:
            self.write_notice(piece.text.rstrip("\n"))
        elif not sys.stdout.isatty():
            _write(piece.text)
        else:
            *lines, self._rest = (self._rest + self._program.feed(piece.text)).split("\n")
            for line in lines:
                self._print(line)

    def _print(self, line: str) -> None:
        from rich.text import Text

        self._live.console.print(Text.from_ansi(last_state(line)), soft_wrap=True)


class JsonScreen:
    """Prints nothing: with `--json` the frames themselves are printed."""

    def write_output(self, text: str) -> None:
        return None

    def write_notice(self, text: str) -> None:
        return None

    def update_status(self, job: JobView, progress: ProgressView | None) -> None:
        return None


def write_segment(out: Output, piece: LogSegment) -> None:
    """Write the program's output to standard output, Crucible's lines to standard error."""
    if piece.from_crucible:
        out.program_notice(piece.text)
    else:
        out.program_output(piece.text)


@contextmanager
def open_screen(out: Output) -> Iterator[Screen]:
    if out.as_json:
        yield JsonScreen()
    elif out.quiet or not out.can_draw_live_line:
        plain = PlainScreen(out)
        yield plain
        plain.finish()
    else:
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True)
        with Live(console=console, refresh_per_second=8, transient=True, redirect_stdout=False) as live:
            screen = LiveScreen(live)
            yield screen
            screen.finish()


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
