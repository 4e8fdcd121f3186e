"""`crucible logs`: a job's output, from the start, from a time on, or as it comes."""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Iterator
from typing import Annotated

import typer

from crucible.cli.jobs.follow import Told, detached
from crucible.cli.jobs.log_search import Search, search
from crucible.cli.options.arguments import Job
from crucible.cli.output.format import end_words, reason_words
from crucible.cli.output.screens import PlainScreen, show_piece
from crucible.cli.output.split_lines import MARK, Piece, Splitter
from crucible.cli.session import Session
from crucible.client.api import Api
from crucible.client.sdk.job_lookup import find_job
from crucible.core.compute.resources import parse_duration
from crucible.core.errors import BadInput
from crucible.core.views.frames import Cursors, JobFrame, LogFrame
from crucible.core.views.jobs import JobView


def logs(
    ctx: typer.Context,
    job: Job,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only what is younger, such as 10m.")
    ] = None,
    grep: Annotated[
        str | None, typer.Option("--grep", metavar="TEXT", help="Only lines with this text, of all attempts.")
    ] = None,
    regex: Annotated[bool, typer.Option("--regex", "-E", help="--grep is a regular expression.")] = False,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="--grep in upper or lower case.")] = False,
    context: Annotated[
        int, typer.Option("--context", "-C", metavar="N", min=0, max=10, help="Lines around what --grep finds.")
    ] = 0,
    attempt: Annotated[
        int | None, typer.Option("--attempt", metavar="N", min=1, help="Not the newest attempt.")
    ] = None,
) -> int:
    """Print a job's output. With -f the exit code is the job's own; Ctrl-C detaches."""
    session = Session.of(ctx)
    if grep is not None and not follow and since is None:
        return search(session, job, Search(grep, regex, ignore_case, context, attempt))
    lines = _Lines(session, _pattern(grep, regex=regex, ignore_case=ignore_case))
    start = None if since is None else time.time() - parse_duration(since)
    with session.api() as api:
        found = find_job(api, job)
        if not follow:
            if found.is_queued:
                session.out.say(f"{found.display_name} has not started. Waiting: {found.waiting or 'for its turn'}")
            _printed(api, found.id, attempt, start, lines)
            lines.end()
            return 0
        return _followed(session, api, found, lines, _printed(api, found.id, attempt, start, lines))


def _followed(session: Session, api: Api, job: JobView, lines: _Lines, cursors: Cursors) -> int:
    told = Told(PlainScreen(session.out))
    try:
        if job.is_queued:
            told.about(job)
        for frame in api.stream(job.id, cursors=cursors, notice=session.out.warn):
            match frame:
                case LogFrame():
                    lines.add(frame.text, frame.attempt)
                case JobFrame():
                    job = frame.job
            if job.is_queued:
                told.about(job)
    except KeyboardInterrupt:
        return detached(job, session.out)
    lines.end()
    session.out.say(end_words(job))
    if job.status != "completed":
        for text in reason_words(job)[:1]:
            session.out.explain(text)
    return job.result_code


class _Lines:
    """Prints text as it came, or line by line when lines are chosen or wrapped in JSON."""

    def __init__(self, session: Session, pattern: re.Pattern[str] | None) -> None:
        self._out, self._pattern = session.out, pattern
        self._splitter = Splitter()
        self._rest = ""
        self._attempt: int | None = None

    def add(self, text: str, attempt: int | None) -> None:
        if attempt != self._attempt:
            self.end()
        self._attempt = attempt
        if self._pattern is None and not self._out.as_json:
            for piece in self._splitter.feed(text):
                show_piece(self._out, piece)
            return
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._line(line)

    def end(self) -> None:
        for piece in self._splitter.finish():
            show_piece(self._out, piece)
        if self._rest:
            self._line(self._rest)
            self._rest = ""

    def _line(self, line: str) -> None:
        if self._pattern is not None and not self._pattern.search(line):
            return
        if self._out.as_json:
            self._out.json({"attempt": self._attempt, "line": line})
        else:
            show_piece(self._out, Piece(f"{line}\n", line.startswith(MARK)))


def _printed(api: Api, job: str, attempt: int | None, since: float | None, lines: _Lines) -> Cursors:
    """Print what there is now; returns where to go on from."""
    cursors = Cursors(attempt=attempt)
    for text, cursors in _stored(api, job, attempt, since):
        lines.add(text, cursors.attempt)
    return cursors


def _stored(api: Api, job: str, attempt: int | None, since: float | None) -> Iterator[tuple[str, Cursors]]:
    """The log as text, piece by piece, never cutting a character in two."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    page = api.logs(job, attempt=attempt, since=since)
    while page.data:
        yield decoder.decode(page.data), Cursors(attempt=page.attempt or None, offset=page.next)
        page = api.logs(job, attempt=page.attempt or None, offset=page.next)
    yield decoder.decode(b"", final=True), Cursors(attempt=page.attempt or attempt, offset=page.next)


def _pattern(text: str | None, *, regex: bool, ignore_case: bool) -> re.Pattern[str] | None:
    """For output that is not stored yet, or is chosen by its time: it is looked at as it passes by."""
    if text is None:
        return None
    try:
        return re.compile(text if regex else re.escape(text), re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        fix = "Mend it, or leave out --regex to look for the text as it is."
        raise BadInput(f"--grep {text!r} is no regular expression.", why=f"{error}.", fix=fix) from error
