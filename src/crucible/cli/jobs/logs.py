"""`crucible logs` and `crucible attach`: a job's output, stored or as it comes."""

from __future__ import annotations

import codecs
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.jobs.follow import JobNotices, end_of_output, follow_to_end, print_detached
from crucible.cli.options.common_options import Job
from crucible.cli.output.format import format_end, format_reason
from crucible.cli.output.screens import CRUCIBLE_PREFIX, LogSegment, LogSplitter, PlainScreen, write_segment
from crucible.client.api import Api
from crucible.client.sdk.job_lookup import find_job
from crucible.core.compute.resources import parse_duration
from crucible.core.errors import BadInput
from crucible.core.views.frames import Cursors, JobFrame, LogFrame
from crucible.core.views.jobs import JobView
from crucible.core.views.search import HitView


def logs(
    ctx: typer.Context,
    job: Job,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the output until the job ends.")] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only output newer than this, such as 10m.")
    ] = None,
    grep: Annotated[
        str | None, typer.Option("--grep", metavar="TEXT", help="Only lines containing this text, in all attempts.")
    ] = None,
    regex: Annotated[bool, typer.Option("--regex", "-E", help="Treat --grep as a regular expression.")] = False,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Ignore case in --grep.")] = False,
    context: Annotated[
        int,
        typer.Option(
            "--context", "-C", metavar="N", min=0, max=10, help="Lines of context around each match (default: 0)."
        ),
    ] = 0,
    attempt: Annotated[
        int | None, typer.Option("--attempt", metavar="N", min=1, help="Attempt number (default: the newest).")
    ] = None,
) -> int:
    """Print a job's output. With -f the exit code is the job's own; Ctrl-C detaches."""
    cli = CommandContext.from_typer(ctx)
    if grep is not None and not follow and since is None:
        return print_matches(cli, job, Search(grep, regex, ignore_case, context, attempt))
    lines = _LinePrinter(cli, _pattern(grep, regex=regex, ignore_case=ignore_case))
    start = None if since is None else time.time() - parse_duration(since)
    with cli.api() as api:
        view = find_job(api, job)
        if not follow:
            if view.is_queued:
                cli.out.say(f"{view.display_name} has not started. Waiting: {view.waiting or 'for its turn'}")
            _print_stored(api, view.id, attempt, start, lines)
            lines.end()
            return 0
        return _follow(cli, api, view, lines, _print_stored(api, view.id, attempt, start, lines))


def _follow(cli: CommandContext, api: Api, job: JobView, lines: _LinePrinter, cursors: Cursors) -> int:
    notices = JobNotices(PlainScreen(cli.out))
    try:
        if job.is_queued:
            notices.update(job)
        for frame in api.stream(job.id, cursors=cursors, notice=cli.out.warn):
            match frame:
                case LogFrame():
                    lines.add(frame.text, frame.attempt)
                case JobFrame():
                    job = frame.job
            if job.is_queued:
                notices.update(job)
    except KeyboardInterrupt:
        return print_detached(job, cli.out)
    lines.end()
    cli.out.say(format_end(job))
    if job.status != "completed":
        for text in format_reason(job)[:1]:
            cli.out.say_indented(text)
    return job.result_code


class _LinePrinter:
    """Prints text as it came, or line by line when lines are filtered or printed as JSON."""

    def __init__(self, cli: CommandContext, pattern: re.Pattern[str] | None) -> None:
        self._out, self._pattern = cli.out, pattern
        self._splitter = LogSplitter()
        self._rest = ""
        self._attempt: int | None = None

    def add(self, text: str, attempt: int | None) -> None:
        if attempt != self._attempt:
            self.end()
        self._attempt = attempt
        if self._pattern is None and not self._out.as_json:
            for piece in self._splitter.feed(text):
                write_segment(self._out, piece)
            return
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._line(line)

    def end(self) -> None:
        for piece in self._splitter.finish():
            write_segment(self._out, piece)
        if self._rest:
            self._line(self._rest)
            self._rest = ""

    def _line(self, line: str) -> None:
        if self._pattern is not None and not self._pattern.search(line):
            return
        if self._out.as_json:
            self._out.json({"attempt": self._attempt, "line": line})
        else:
            write_segment(self._out, LogSegment(f"{line}\n", line.startswith(CRUCIBLE_PREFIX)))


def _print_stored(api: Api, job: str, attempt: int | None, since: float | None, lines: _LinePrinter) -> Cursors:
    """Print the stored output; return where to continue from."""
    cursors = Cursors(attempt=attempt)
    for text, cursors in _read_stored(api, job, attempt, since):
        lines.add(text, cursors.attempt)
    return cursors


def _read_stored(api: Api, job: str, attempt: int | None, since: float | None) -> Iterator[tuple[str, Cursors]]:
    """Yield the log as text with its cursor, page by page. Decodes incrementally: a page may end within a character."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    page = api.logs(job, attempt=attempt, since=since)
    while page.data:
        yield decoder.decode(page.data), Cursors(attempt=page.attempt or None, offset=page.next)
        page = api.logs(job, attempt=page.attempt or None, offset=page.next)
    yield decoder.decode(b"", final=True), Cursors(attempt=page.attempt or attempt, offset=page.next)


def _pattern(text: str | None, *, regex: bool, ignore_case: bool) -> re.Pattern[str] | None:
    """Compile --grep for output that the server cannot search: not stored yet, or selected by time."""
    if text is None:
        return None
    try:
        return re.compile(text if regex else re.escape(text), re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        fix = "Correct it, or leave out --regex to search for the literal text."
        raise BadInput(f"--grep {text!r} is not a valid regular expression.", why=f"{error}.", fix=fix) from error


PAGE = 1000


@dataclass(frozen=True)
class Search:
    text: str
    regex: bool = False
    ignore_case: bool = False
    context: int = 0
    attempt: int | None = None


def print_matches(cli: CommandContext, job: str, query: Search) -> int:
    found = False
    with cli.api() as api:
        for hit in find_matches(api, find_job(api, job).id, query):
            if found and query.context and not cli.out.as_json:
                cli.out.data("--")
            _print_match(cli, hit)
            found = True
    if not found:
        cli.out.say("No line matches.")
    return 0


def find_matches(api: Api, job: str, query: Search) -> Iterator[HitView]:
    """Yield all matches, page by page."""
    cursor: str | None = None
    while True:
        page = api.search_logs(
            job,
            query.text,
            regex=query.regex,
            case=not query.ignore_case,
            attempt=query.attempt,
            context=query.context,
            limit=PAGE,
            cursor=cursor,
        )
        yield from page.items
        cursor = page.next
        if cursor is None:
            return


def _print_match(cli: CommandContext, hit: HitView) -> None:
    if cli.out.as_json:
        cli.out.json(hit.as_json())
        return
    for line in (*hit.before, hit.text, *hit.after):
        write_segment(cli.out, LogSegment(f"{line}\n", line.startswith(CRUCIBLE_PREFIX)))


def attach(
    ctx: typer.Context,
    job: Job,
    since_start: Annotated[
        bool, typer.Option("--since-start", help="Show all output of the current attempt, not only new output.")
    ] = False,
    shell: Annotated[
        bool, typer.Option("--shell", help="Open a shell inside the job instead, like `exec -t`.")
    ] = False,
) -> int:
    """Show a job's output from now on, like `run`; return the job's exit code. Ctrl-C detaches.

    Waits for a queued job to start. The program has no standard input: nothing you type reaches it.
    """
    cli = CommandContext.from_typer(ctx)
    if shell and (since_start or cli.out.as_json):
        raise BadInput("--shell excludes --since-start and --json.", fix="Leave those options out.")
    with cli.api() as api:
        view = find_job(api, job)
        if shell:
            from crucible.cli.jobs.exec import run_in_job

            return run_in_job(cli, api, view, (), tty=True, stdin=sys.stdin is not None)
        if view.ended:
            return _print_ended(cli, api, view)
        return follow_to_end(cli.out, api, view, cursors=Cursors() if since_start else end_of_output(api, view))


def _print_ended(cli: CommandContext, api: Api, job: JobView) -> int:
    if cli.out.as_json:
        cli.out.json(api.job(job.id).as_json())
    else:
        cli.out.say(f"{format_end(job)}. See its output: crucible logs {job.display_name}")
    return job.result_code
