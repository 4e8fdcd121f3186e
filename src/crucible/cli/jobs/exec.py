"""`crucible exec`: a command, or a shell, in the surroundings of a running job."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from crucible.cli.options.arguments import Job
from crucible.cli.session import Session
from crucible.client.api import Api
from crucible.client.sdk.job_lookup import find_job
from crucible.core.errors import BadInput
from crucible.core.job.states import JobState
from crucible.core.views.jobs import JobView
from crucible.wire.http.sessions import BEGIN_SECONDS


def exec_(
    ctx: typer.Context,
    job: Job,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="In a terminal, for shells and what draws.")] = False,
    stdin: Annotated[
        bool, typer.Option("--stdin/--no-stdin", "-i/-n", help="Hand standard input on, or leave it alone.")
    ] = True,
) -> int:
    """Run a command where a job runs: its folder, variables, Python and limits. Without one: a shell.

    The exit code is the command's own, 128 and the number of a signal that ended it. It ends with the job.
    """
    session = Session.of(ctx)
    words, stdin = session.arguments, stdin and sys.stdin is not None
    tty = tty or (not words and stdin and sys.stdin.isatty() and sys.stdout.isatty())
    if not words and not tty:
        raise BadInput("Say what to run.", fix=f"crucible exec {job} -- nvidia-smi, or crucible exec -t {job}")
    if tty and session.out.as_json:
        raise BadInput("--tty and --json contradict each other.", fix="Leave one of them out.")
    with session.api() as api:
        found = find_job(api, job)
        return enter(session, api, found, words, tty=tty, stdin=stdin)


def enter(session: Session, api: Api, job: JobView, words: tuple[str, ...], *, tty: bool, stdin: bool = True) -> int:
    """Run the command to its end, joined to this process's own input and output; its exit code."""
    tell_wait(session, job)
    if session.out.as_json:
        taken = sys.stdin.buffer.read() if stdin and not sys.stdin.isatty() else b""
        done = api.execute(job.id, words, input=taken)
        session.out.json(done.as_json())
        return done.code
    from crucible.cli.jobs.terminal import Joined, size_here
    from crucible.client.transport.sessions import command_of

    size = size_here() if tty else None
    term = session.environ.get("TERM", "") if tty else ""
    with api.session(job.id, command_of(words, size, term)) as opened:
        over = Joined(opened, tty=tty, stdin=stdin).run()
    if over.job_ended:
        session.out.warn("The job has ended, and the session with it.")
    return over.exit_code


def tell_wait(session: Session, job: JobView) -> None:
    """Say so where a session has to wait for the job's program."""
    if job.phase == JobState.STARTING:
        most = f"for at most {BEGIN_SECONDS:.0f} seconds"
        session.out.say(f"The program of {job.display_name} has not begun; it is waited for, {most}.")
