"""`crucible exec`: run a command or a shell inside a running job."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.options.common_options import Job
from crucible.client.api import Api
from crucible.client.sdk.job_lookup import find_job
from crucible.core.errors import BadInput
from crucible.core.job.states import JobState
from crucible.core.views.jobs import JobView
from crucible.wire.http.sessions import BEGIN_SECONDS


def exec_(
    ctx: typer.Context,
    job: Job,
    tty: Annotated[
        bool, typer.Option("--tty", "-t", help="Allocate a terminal, for shells and full-screen programs.")
    ] = False,
    stdin: Annotated[
        bool, typer.Option("--stdin/--no-stdin", "-i/-n", help="Pass standard input on (default: yes).")
    ] = True,
) -> int:
    """Run a command inside a running job, with its folder, variables, Python and limits. Without a command: a shell.

    The exit code is the command's own, or 128 plus the signal that ended it. The command ends with the job.
    """
    cli = CommandContext.from_typer(ctx)
    words, stdin = cli.arguments, stdin and sys.stdin is not None
    tty = tty or (not words and stdin and sys.stdin.isatty() and sys.stdout.isatty())
    if not words and not tty:
        raise BadInput("No command given.", fix=f"crucible exec {job} -- nvidia-smi, or crucible exec -t {job}")
    if tty and cli.out.as_json:
        raise BadInput("--tty and --json exclude each other.", fix="Leave one of them out.")
    with cli.api() as api:
        view = find_job(api, job)
        return run_in_job(cli, api, view, words, tty=tty, stdin=stdin)


def run_in_job(
    cli: CommandContext, api: Api, job: JobView, words: tuple[str, ...], *, tty: bool, stdin: bool = True
) -> int:
    """Run the command attached to this process's input and output; return its exit code."""
    say_if_starting(cli, job)
    if cli.out.as_json:
        taken = sys.stdin.buffer.read() if stdin and not sys.stdin.isatty() else b""
        done = api.execute(job.id, words, input=taken)
        cli.out.json(done.as_json())
        return done.code
    from crucible.cli.jobs.terminal import AttachedTerminal, terminal_size
    from crucible.client.transport.sessions import make_command

    size = terminal_size() if tty else None
    term = cli.environ.get("TERM", "") if tty else ""
    with api.session(job.id, make_command(words, size, term)) as opened:
        over = AttachedTerminal(opened, tty=tty, stdin=stdin).run()
    if over.job_ended:
        cli.out.warn("The job has ended, and with it the command.")
    return over.exit_code


def say_if_starting(cli: CommandContext, job: JobView) -> None:
    """Tell the user if the command has to wait for the job's program to start."""
    if job.phase == JobState.STARTING:
        cli.out.say(f"{job.display_name} is still starting; waiting up to {BEGIN_SECONDS:.0f} seconds.")
