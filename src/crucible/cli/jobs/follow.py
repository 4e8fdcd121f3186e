"""Following a job: its output, what happens to it, and a summary at the end."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from crucible.cli.output.attempts import condition_words, ended_words, lost_steps, newest, resumed_words
from crucible.cli.output.format import end_words, health_words, money_words, place_words, reason_words
from crucible.cli.output.output import Output
from crucible.cli.output.screens import Screen, open_screen
from crucible.client.api import Api
from crucible.core.compute.resources import format_memory
from crucible.core.errors import CrucibleError
from crucible.core.views.frames import Cursors, HealthFrame, JobFrame, LogFrame, ProgressFrame
from crucible.core.views.jobs import HealthView, JobView

DETACHED = 130
SIMULATED = "Simulated: this place is a rehearsal. Its machines are processes of one computer, its money is play money."
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


Advice = Callable[[tuple[str, ...]], tuple[str, ...]]
"""From the last lines of a failed job's output to hints about it."""


def submitted(out: Output, job: JobView) -> int:
    """What a command says that leaves its job to run: the id alone on standard output."""
    if out.as_json:
        out.json(job.as_json())
    else:
        out.data(job.id)
        if job.is_simulated:
            out.say(SIMULATED)
        out.say(f"Follow: crucible logs -f {job.display_name} · Cancel: crucible cancel {job.display_name}")
    return 0


def watch(
    out: Output, api: Api, job: JobView, *, cursors: Cursors | None = None, advise: Advice = lambda tail: ()
) -> int:
    """Follow the job to its end and say how it ended; its own code, or 130 when Ctrl-C detached."""
    try:
        followed = follow(api, job, out, cursors)
    except KeyboardInterrupt:
        return detached(job, out)
    if out.as_json:
        out.json(api.job(followed.job.id).as_json())
    else:
        summary(api, followed.job, out, advise(followed.tail))
    return followed.job.result_code


def end_of(api: Api, job: JobView) -> Cursors | None:
    """Where the output of its newest attempt ends now, for what comes after; None where there is none."""
    if not job.attempt:
        return None
    page = api.logs(job.id, attempt=job.attempt, offset=-1, limit=1)
    return Cursors(attempt=page.attempt or job.attempt, offset=page.next)


def follow(api: Api, job: JobView, out: Output, cursors: Cursors | None = None) -> Followed:
    """Show the job until its end. KeyboardInterrupt is the caller's to take."""
    with open_screen(out) as screen:
        return _follow(api, job, screen, out, cursors)


def _follow(api: Api, job: JobView, screen: Screen, out: Output, cursors: Cursors | None) -> Followed:
    progress, told, tail = job.progress, Told(screen, max(job.attempt or 1, 1)), Tail()
    told.about(job)
    screen.state(job, progress)
    for frame in api.stream(job.id, cursors=cursors, notice=out.warn if out.as_json else screen.news):
        if out.as_json:
            out.json(frame.as_json())
        match frame:
            case LogFrame():
                tail.add(frame.text)
                screen.output(frame.text)
            case HealthFrame():
                told.health(frame.health)
            case ProgressFrame():
                progress = frame.progress
            case JobFrame():
                job = frame.job
                progress = job.progress or progress
                told.about(job)
        screen.state(job, progress)
    return Followed(job, tail.lines)


class Told:
    """Says once where a job runs, or will run, why it waits, how its tries ended, and what they went on from."""

    def __init__(self, screen: Screen, since: int = 1) -> None:
        """`since` is the first attempt whose end is news."""
        self._screen = screen
        self._since = since
        self._said: set[str] = set()

    def about(self, job: JobView) -> None:
        place = place_words(job)
        if job.is_simulated:
            self._once(SIMULATED)
        self._ended_tries(job)
        if job.is_queued:
            self._waiting(job, place)
        elif place is not None and not (job.ended and job.started_at is None):
            self._once(f"Running on {place}")
        if not job.ended and not job.is_queued:
            self._try(job)
        for text in () if job.ended else condition_words(job):
            self._once(f"{job.display_name}: {text}")

    def health(self, health: HealthView) -> None:
        """Only what is worth a look: that a job does well needs no words."""
        if health.level != "good":
            self._once("\n  ".join(health_words(health)))

    def _ended_tries(self, job: JobView) -> None:
        """Why tries are over that were not the last one."""
        over = job.attempts[:-1] if job.ended else job.attempts
        for attempt in over:
            if self._since <= attempt.number and (why := ended_words(attempt)):
                self._once(f"Attempt {attempt.number} ended: {why}")

    def _try(self, job: JobView) -> None:
        last = newest(job)
        if last is None or (last.number <= 1 and last.resume_from is None):
            return
        before = next((attempt for attempt in job.attempts if attempt.number == last.number - 1), None)
        lost = lost_steps(before, last) if before is not None else None
        parts = [
            f"Attempt {last.number}",
            f": {resumed_words(last.resume_from)}" if last.resume_from is not None else "",
            f"; {lost} steps are done again" if lost else "",
        ]
        self._once("".join(parts))

    def _waiting(self, job: JobView, place: str | None) -> None:
        if not job.waiting:
            return
        first = job.started_at is None and not any(text.startswith("Will run on") for text in self._said)
        if place is not None and first:
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
    follow_it, cancel_it = f"crucible logs -f {job.display_name}", f"crucible cancel {job.display_name}"
    out.warn(f"\nDetached; the job goes on. Follow: {follow_it} · Cancel: {cancel_it}")
    return DETACHED


def summary(api: Api, job: JobView, out: Output, hints: tuple[str, ...] = ()) -> None:
    """How a job that was followed ended, why, what to do about it, what it cost, and how to get its artifacts."""
    out.say(f"{end_words(job)}, {money_words(job)}")
    if job.status != "completed":
        for text in (*_followed_reason(job), *hints):
            out.explain(text)
        _checkpoint(job, out)
    for text in condition_words(job):
        out.explain(f"Note: {text}")
    _artifacts(api, job, out)


def _checkpoint(job: JobView, out: Output) -> None:
    if job.checkpoint is not None:
        step = f" of step {job.checkpoint.step}" if job.checkpoint.step is not None else ""
        out.explain(f"Its last checkpoint{step} is kept; go on from there: crucible resume {job.display_name}")


def _followed_reason(job: JobView) -> tuple[str, ...]:
    """The reason, without the advice to look at an output that was just seen."""
    return tuple(text for text in reason_words(job) if f"crucible logs {job.display_name}" not in text)


def _artifacts(api: Api, job: JobView, out: Output) -> None:
    try:
        found = api.artifacts(job.id)
    except CrucibleError as error:
        out.say(f"  Its artifacts cannot be listed now: {error.what}")
        return
    if found:
        size = format_memory(sum(item.size for item in found))
        count = f"{len(found)} artifact{'s' if len(found) > 1 else ''}"
        out.say(f"  {count} ({size}): crucible download {job.display_name}")
