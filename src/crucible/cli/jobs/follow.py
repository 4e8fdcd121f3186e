"""Follow a job: its output, what happens to it, and a summary at the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from crucible.cli.output.attempts import (
    count_lost_steps,
    format_attempt_end,
    format_conditions,
    format_resume_point,
    newest_attempt,
)
from crucible.cli.output.format import format_end, format_health, format_job_cost, format_placement, format_reason
from crucible.cli.output.output import Output
from crucible.cli.output.screens import Screen, open_screen
from crucible.client.api import Api
from crucible.core.compute.resources import format_memory
from crucible.core.errors import CrucibleError
from crucible.core.views.frames import Cursors, HealthFrame, JobFrame, LogFrame, ProgressFrame
from crucible.core.views.jobs import HealthView, JobView

DETACHED = 130
SIMULATED = "Simulated: this backend is a rehearsal. Its machines are local processes and nothing is billed."
TAIL_LINES = 40


@dataclass(frozen=True)
class FollowResult:
    """How a job ended, and the last lines of its output."""

    job: JobView
    tail: tuple[str, ...] = ()


class OutputTail:
    """The last lines of a streamed text."""

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


FindHints = Callable[[tuple[str, ...]], tuple[str, ...]]
"""Returns hints from the last lines of a failed job's output."""


def print_submitted(out: Output, job: JobView) -> int:
    """Print a detached job: its ID alone on standard output, the commands to follow it on standard error."""
    if out.as_json:
        out.json(job.as_json())
    else:
        out.data(job.id)
        if job.is_simulated:
            out.say(SIMULATED)
        out.say(f"Follow: crucible logs -f {job.display_name} · Cancel: crucible cancel {job.display_name}")
    return 0


def follow_to_end(
    out: Output, api: Api, job: JobView, *, cursors: Cursors | None = None, advise: FindHints = lambda tail: ()
) -> int:
    """Follow the job and print a summary; return the job's exit code, or 130 after Ctrl-C detached."""
    try:
        followed = follow(api, job, out, cursors)
    except KeyboardInterrupt:
        return print_detached(job, out)
    if out.as_json:
        out.json(api.job(followed.job.id).as_json())
    else:
        print_summary(api, followed.job, out, advise(followed.tail))
    return followed.job.result_code


def end_of_output(api: Api, job: JobView) -> Cursors | None:
    """Return where the newest attempt's output ends now, to follow from there; None without an attempt."""
    if not job.attempt:
        return None
    page = api.logs(job.id, attempt=job.attempt, offset=-1, limit=1)
    return Cursors(attempt=page.attempt or job.attempt, offset=page.next)


def follow(api: Api, job: JobView, out: Output, cursors: Cursors | None = None) -> FollowResult:
    """Show the job until its end. KeyboardInterrupt is left to the caller."""
    with open_screen(out) as screen:
        return _follow(api, job, screen, out, cursors)


def _follow(api: Api, job: JobView, screen: Screen, out: Output, cursors: Cursors | None) -> FollowResult:
    progress, notices, tail = job.progress, JobNotices(screen, max(job.attempt or 1, 1)), OutputTail()
    notices.update(job)
    screen.update_status(job, progress)
    for frame in api.stream(job.id, cursors=cursors, notice=out.warn if out.as_json else screen.write_notice):
        if out.as_json:
            out.json(frame.as_json())
        match frame:
            case LogFrame():
                tail.add(frame.text)
                screen.write_output(frame.text)
            case HealthFrame():
                notices.health(frame.health)
            case ProgressFrame():
                progress = frame.progress
            case JobFrame():
                job = frame.job
                progress = job.progress or progress
                notices.update(job)
        screen.update_status(job, progress)
    return FollowResult(job, tail.lines)


class JobNotices:
    """Prints, once each: where a job runs or will run, why it waits, how attempts ended and what they resumed from."""

    def __init__(self, screen: Screen, since: int = 1) -> None:
        """`since` is the first attempt whose end is printed."""
        self._screen = screen
        self._since = since
        self._printed: set[str] = set()

    def update(self, job: JobView) -> None:
        placement = format_placement(job)
        if job.is_simulated:
            self._once(SIMULATED)
        self._attempts_ended(job)
        if job.is_queued:
            self._waiting(job, placement)
        elif placement is not None and not (job.ended and job.started_at is None):
            self._once(f"Running on {placement}")
        if not job.ended and not job.is_queued:
            self._attempt_started(job)
        for text in () if job.ended else format_conditions(job):
            self._once(f"{job.display_name}: {text}")

    def health(self, health: HealthView) -> None:
        """Print a problem; good health is not printed."""
        if health.level != "good":
            self._once("\n  ".join(format_health(health)))

    def _attempts_ended(self, job: JobView) -> None:
        """Print why attempts ended, except the one the summary is about."""
        for attempt in job.attempts[:-1] if job.ended else job.attempts:
            if self._since <= attempt.number and (why := format_attempt_end(attempt)):
                self._once(f"Attempt {attempt.number} ended: {why}")

    def _attempt_started(self, job: JobView) -> None:
        last = newest_attempt(job)
        if last is None or (last.number <= 1 and last.resume_from is None):
            return
        before = next((attempt for attempt in job.attempts if attempt.number == last.number - 1), None)
        lost = count_lost_steps(before, last) if before is not None else None
        parts = [
            f"Attempt {last.number}",
            f": {format_resume_point(last.resume_from)}" if last.resume_from is not None else "",
            f"; {lost} steps to repeat" if lost else "",
        ]
        self._once("".join(parts))

    def _waiting(self, job: JobView, placement: str | None) -> None:
        if not job.waiting:
            return
        first = job.started_at is None and not any(text.startswith("Will run on") for text in self._printed)
        if placement is not None and first:
            self._once(f"Will run on {placement}; waiting: {job.waiting}")
            self._printed.add(f"Waiting: {job.waiting}")  # already said with where it will run
        else:
            self._once(f"Waiting: {job.waiting}")

    def _once(self, text: str) -> None:
        if text not in self._printed:
            self._printed.add(text)
            self._screen.write_notice(text)


def print_detached(job: JobView, out: Output) -> int:
    follow_it, cancel_it = f"crucible logs -f {job.display_name}", f"crucible cancel {job.display_name}"
    out.warn(f"\nDetached; the job continues. Follow: {follow_it} · Cancel: {cancel_it}")
    return DETACHED


def print_summary(api: Api, job: JobView, out: Output, hints: tuple[str, ...] = ()) -> None:
    """Print how the job ended, why, what to do, what it cost, and how to download its artifacts."""
    out.say(f"{format_end(job)}, {format_job_cost(job)}")
    if job.status != "completed":
        for text in (*_reason_without_log_advice(job), *hints):
            out.say_indented(text)
        _checkpoint(job, out)
    for text in format_conditions(job):
        out.say_indented(f"Note: {text}")
    _artifacts(api, job, out)


def _checkpoint(job: JobView, out: Output) -> None:
    if job.checkpoint is not None:
        step = f" (step {job.checkpoint.step})" if job.checkpoint.step is not None else ""
        out.say_indented(f"Its last checkpoint{step} is kept. Resume from it: crucible resume {job.display_name}")


def _reason_without_log_advice(job: JobView) -> tuple[str, ...]:
    """Return the reason without the advice to read the output that was just shown."""
    return tuple(text for text in format_reason(job) if f"crucible logs {job.display_name}" not in text)


def _artifacts(api: Api, job: JobView, out: Output) -> None:
    try:
        found = api.artifacts(job.id)
    except CrucibleError as error:
        out.say(f"  Artifacts could not be listed: {error.what}")
        return
    if found:
        size = format_memory(sum(item.size for item in found))
        count = f"{len(found)} artifact{'s' if len(found) > 1 else ''}"
        out.say(f"  {count} ({size}): crucible download {job.display_name}")
    if job.outputs_left_out:
        out.say_indented(f"{job.outputs_left_out}. The reasons: crucible events {job.display_name}")
