"""Where a followed job shows up: a live line on a terminal, plain text elsewhere, nothing beside JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from crucible.cli.output.format import lasted, money_words, progress_words
from crucible.cli.output.output import Output
from crucible.cli.output.split_lines import Piece, Splitter
from crucible.core.compute.resources import format_duration
from crucible.core.views.jobs import JobView, ProgressView

if TYPE_CHECKING:
    from rich.live import Live


class Screen(Protocol):
    def output(self, text: str) -> None: ...

    def news(self, text: str) -> None: ...

    def state(self, job: JobView, progress: ProgressView | None) -> None: ...


class PlainScreen:
    """The program's output to standard output as it is; our own lines, also those in its log, to standard error."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._splitter = Splitter()

    def output(self, text: str) -> None:
        for piece in self._splitter.feed(text):
            show_piece(self._out, piece)

    def news(self, text: str) -> None:
        self._out.say(text)

    def state(self, job: JobView, progress: ProgressView | None) -> None:
        return None

    def finish(self) -> None:
        for piece in self._splitter.finish():
            show_piece(self._out, piece)


class LiveScreen:
    """One line at the bottom of the terminal; output and news scroll above it."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._splitter = Splitter()
        self._rest = ""
        self._job: JobView | None = None
        self._seen_at = 0.0

    def output(self, text: str) -> None:
        for piece in self._splitter.feed(text):
            self._show(piece)

    def news(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False, style="dim")

    def state(self, job: JobView, progress: ProgressView | None) -> None:
        from rich.text import Text

        if job is not self._job:
            self._job, self._seen_at = job, time.monotonic()
        waiting = f"waiting: {job.waiting}" if job.is_queued and job.waiting else ""
        parts = [f"{job.display_name} {job.phase}", waiting, progress_words(progress), money_words(job), self._ran(job)]
        self._live.update(Text(" · ".join(part for part in parts if part), overflow="ellipsis", no_wrap=True))

    def finish(self) -> None:
        for piece in self._splitter.finish():
            self._show(piece)
        if self._rest:
            self._print(self._rest)
            self._rest = ""

    def _ran(self, job: JobView) -> str:
        """How long it has run, going on from when the server said so."""
        seconds = lasted(job)
        if seconds is None:
            return ""
        ticking = job.ran_seconds is not None and job.phase == "running"
        return format_duration(seconds + (time.monotonic() - self._seen_at if ticking else 0.0))

    def _show(self, piece: Piece) -> None:
        if piece.ours:
            self.news(piece.text.rstrip("\n"))
        elif not sys.stdout.isatty():
            _write(piece.text)
        else:
            *lines, self._rest = (self._rest + piece.text).split("\n")
            for line in lines:
                self._print(line)

    def _print(self, line: str) -> None:
        from rich.text import Text

        shown = line.removesuffix("\r").rpartition("\r")[2]  # of a bar that redraws itself, its last state
        self._live.console.print(Text.from_ansi(shown), soft_wrap=True)


class JsonScreen:
    """Nothing here: frames are printed as they come."""

    def output(self, text: str) -> None:
        return None

    def news(self, text: str) -> None:
        return None

    def state(self, job: JobView, progress: ProgressView | None) -> None:
        return None


def show_piece(out: Output, piece: Piece) -> None:
    """A piece of a job's log where it belongs."""
    if not piece.ours:
        _write(piece.text)
    elif not out.quiet:
        sys.stderr.write(piece.text)
        sys.stderr.flush()


@contextmanager
def open_screen(out: Output) -> Iterator[Screen]:
    if out.as_json:
        yield JsonScreen()
    elif out.quiet or not out.talks_to_terminal:
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
