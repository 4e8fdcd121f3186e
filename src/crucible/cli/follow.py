"""Following a job: its output, one live line of progress on a terminal, and a summary at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from crucible.cli.output import Output
from crucible.cli.words import cost_words, lasted, place_words, progress_words, reason_words
from crucible.client.api import Api
from crucible.client.stream import Frame
from crucible.client.views import JobView, ProgressView
from crucible.core.errors import CrucibleError
from crucible.core.resources import format_duration, format_memory

if TYPE_CHECKING:
    from rich.live import Live

DETACHED = 130


class Screen(Protocol):
    """Where a followed job shows up."""

    def output(self, text: str) -> None: ...

    def news(self, text: str) -> None: ...

    def state(self, job: JobView, progress: ProgressView | None) -> None: ...


class PlainScreen:
    """The job's output to standard output as it is; our own lines to standard error."""

    def __init__(self, out: Output) -> None:
        self._out = out

    def output(self, text: str) -> None:
        _write(text)

    def news(self, text: str) -> None:
        self._out.say(text)

    def state(self, job: JobView, progress: ProgressView | None) -> None:
        return None


class LiveScreen:
    """One line at the bottom of the terminal; output and news scroll above it."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._rest = ""

    def output(self, text: str) -> None:
        if not sys.stdout.isatty():
            _write(text)
            return
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._print(line)

    def news(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False, style="dim")

    def state(self, job: JobView, progress: ProgressView | None) -> None:
        from rich.text import Text

        parts = [f"{job.called} {job.phase}", progress_words(progress), cost_words(job.cost)]
        seconds = lasted(job)
        parts.append(format_duration(seconds) if seconds is not None else "")
        self._live.update(Text(" · ".join(part for part in parts if part), overflow="ellipsis", no_wrap=True))

    def finish(self) -> None:
        if self._rest:
            self._print(self._rest)
            self._rest = ""

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


def follow(api: Api, job: JobView, out: Output) -> JobView:
    """Show the job until its end; returns its last state. KeyboardInterrupt is the caller's to take."""
    with _screen(out) as screen:
        return _follow(api, job, screen, out)


def _follow(api: Api, job: JobView, screen: Screen, out: Output) -> JobView:
    progress, told = job.progress, _Told(screen)
    told.about(job)
    screen.state(job, progress)
    for frame in api.stream(job.id, notice=out.warn if out.as_json else screen.news):
        if out.as_json:
            out.json(frame.as_json())
        if frame.text is not None:
            screen.output(frame.text)
        elif frame.job is not None:
            job = frame.job
            told.about(job)
        progress = _progress(frame) or progress
        screen.state(job, progress)
    return job


def _progress(frame: Frame) -> ProgressView | None:
    return frame.progress or (frame.job.progress if frame.job else None)


class _Told:
    """Says once where a job runs, and each new reason for which it waits or tries again."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._said: set[str] = set()

    def about(self, job: JobView) -> None:
        place = place_words(job)
        if job.waiting and not job.ended:
            self._once(f"Waiting: {job.waiting}")
        if place is not None:
            self._once(f"Running on {place}")
        if job.attempt and job.attempt > 1 and not job.ended:
            self._once(f"Attempt {job.attempt}")

    def _once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._screen.news(text)


@contextmanager
def _screen(out: Output) -> Iterator[Screen]:
    if out.as_json:
        yield JsonScreen()
    elif out.quiet or not out.talks_to_terminal:
        yield PlainScreen(out)
    else:
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True)
        with Live(console=console, refresh_per_second=8, transient=True, redirect_stdout=False) as live:
            screen = LiveScreen(live)
            yield screen
            screen.finish()


def detached(job: JobView, out: Output) -> int:
    follow_it, cancel_it = f"crucible logs -f {job.called}", f"crucible cancel {job.called}"
    out.warn(f"\nDetached; the job goes on. Follow: {follow_it} · Cancel: {cancel_it}")
    return DETACHED


def summary(api: Api, job: JobView, out: Output) -> None:
    """How it ended, why, what it cost, and how to get its artifacts."""
    seconds = lasted(job)
    after = f" after {format_duration(seconds)}" if seconds is not None else ""
    code = f" (exit code {job.exit_code})" if job.exit_code else ""
    signal = f" (signal {job.signal})" if job.signal else ""
    out.say(f"{job.called} {job.status}{after}{code or signal}, {cost_words(job.cost)}")
    if job.status != "completed":
        for line in reason_words(job):
            out.say(f"  {line}")
    _artifacts(api, job, out)


def _artifacts(api: Api, job: JobView, out: Output) -> None:
    try:
        found = api.artifacts(job.id)
    except CrucibleError as error:
        out.say(f"  Its artifacts cannot be listed now: {error.what}")
        return
    if found:
        size = format_memory(sum(item.size for item in found))
        count = f"{len(found)} artifact{'s' if len(found) > 1 else ''}"
        out.say(f"  {count} ({size}): crucible download {job.called}")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
