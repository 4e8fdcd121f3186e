"""Following a job: its output, what happens to it, and a summary at the end."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

from crucible.cli.output import Output
from crucible.cli.screens import Screen, open_screen
from crucible.cli.words import cost_words, end_words, place_words, reason_words
from crucible.client.api import Api
from crucible.client.stream import Frame
from crucible.client.views import JobView, ProgressView
from crucible.core.errors import CrucibleError
from crucible.core.resources import format_memory

DETACHED = 130
TAIL_LINES = 40
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Followed:
    """How a job ended, and the last lines of its output."""

    job: JobView
    tail: tuple[str, ...] = ()


class Tail:
    """The last lines of a text that comes in pieces."""

    def __init__(self, most: int = TAIL_LINES) -> None:
        self._lines: deque[str] = deque(maxlen=most)
        self._rest = ""

    def add(self, text: str) -> None:
        *lines, rest = (self._rest + text).split("\n")
        self._lines.extend(lines)
        self._rest = rest[-10_000:]

    @property
    def lines(self) -> tuple[str, ...]:
        return (*self._lines, *((self._rest,) if self._rest else ()))


def follow(api: Api, job: JobView, out: Output) -> Followed:
    """Show the job until its end. KeyboardInterrupt is the caller's to take."""
    with open_screen(out) as screen:
        return _follow(api, job, screen, out)


def _follow(api: Api, job: JobView, screen: Screen, out: Output) -> Followed:
    progress, told, tail = job.progress, Told(screen), Tail()
    told.about(job)
    screen.state(job, progress)
    for frame in api.stream(job.id, notice=out.warn if out.as_json else screen.news):
        if out.as_json:
            out.json(frame.as_json())
        if frame.text is not None:
            tail.add(frame.text)
            screen.output(frame.text)
        elif frame.job is not None:
            job = frame.job
            told.about(job)
        progress = _progress(frame) or progress
        screen.state(job, progress)
    return Followed(job, tail.lines)


def _progress(frame: Frame) -> ProgressView | None:
    return frame.progress or (frame.job.progress if frame.job else None)


class Told:
    """Says once where a job runs, or will run, and each new reason for which it waits or tries again."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._said: set[str] = set()

    def about(self, job: JobView) -> None:
        place = place_words(job)
        if job.waits:
            self._waiting(job, place)
        elif place is not None and not (job.ended and job.started_at is None):
            self._once(f"Running on {place}")
        if job.attempt and job.attempt > 1 and not job.ended and not job.waits:
            self._once(f"Attempt {job.attempt}")

    def _waiting(self, job: JobView, place: str | None) -> None:
        if not job.waiting:
            return
        if place is not None and not any(text.startswith("Will run on") for text in self._said):
            self._once(f"Will run on {place}; waiting: {job.waiting}")
            self._said.add(_kept(f"Waiting: {job.waiting}"))
        else:
            self._once(f"Waiting: {job.waiting}")

    def _once(self, text: str) -> None:
        if _kept(text) not in self._said:
            self._said.add(_kept(text))
            self._screen.news(text)


def _kept(text: str) -> str:
    """What makes a text new: not the seconds that go by until the next try."""
    return _NUMBER.sub("N", text) if "tries again in" in text else text


def detached(job: JobView, out: Output) -> int:
    follow_it, cancel_it = f"crucible logs -f {job.called}", f"crucible cancel {job.called}"
    out.warn(f"\nDetached; the job goes on. Follow: {follow_it} · Cancel: {cancel_it}")
    return DETACHED


def summary(api: Api, job: JobView, out: Output, hints: tuple[str, ...] = ()) -> None:
    """How a job that was followed ended, why, what to do about it, what it cost, and how to get its artifacts."""
    out.say(f"{end_words(job)}, {cost_words(job.cost)}")
    if job.status != "completed":
        for text in (*_followed_reason(job), *hints):
            out.explain(text)
    _artifacts(api, job, out)


def _followed_reason(job: JobView) -> tuple[str, ...]:
    """The reason, without the advice to look at an output that was just seen."""
    return tuple(text for text in reason_words(job) if f"crucible logs {job.called}" not in text)


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
