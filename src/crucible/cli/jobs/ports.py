"""`crucible ports`: forward a running job's ports to this computer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.jobs.exec import say_if_starting
from crucible.cli.options.common_options import Job
from crucible.client.api import Api
from crucible.client.sdk.job_lookup import find_job
from crucible.client.sdk.port_forward import HOST, PortForward, require_port
from crucible.core.errors import BadInput, CrucibleError
from crucible.core.views.frames import JobFrame
from crucible.core.views.jobs import JobView

PortPair = tuple[int, int | None]
"""A port of the job and a local port (None: the same number)."""


def ports(
    ctx: typer.Context,
    job: Job,
    wanted: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PORT[:LOCAL]…]", help="Port of the job, and the local port (default: the same; 0: any free port)."
        ),
    ] = None,
) -> int:
    """Forward a running job's ports to 127.0.0.1 until Ctrl-C or the job's end. Without ports: list them.

    Only ports that the job's processes listen on can be forwarded.
    """
    cli = CommandContext.from_typer(ctx)
    pairs = [parse_pair(text) for text in wanted or ()]
    with cli.api() as api:
        view = find_job(api, job)
        say_if_starting(cli, view)
        listening = api.ports(view.id)
        if not pairs:
            return _print_ports(cli, listening)
        for remote, _ in pairs:
            require_port(listening, remote)
        return _forward(cli, api, view, pairs)


def _print_ports(cli: CommandContext, listening: Sequence[int]) -> int:
    if cli.out.as_json:
        cli.out.json({"items": [{"port": port} for port in listening]})
    elif not listening:
        cli.out.say("No process of the job listens on a port.")
    for port in () if cli.out.as_json else listening:
        cli.out.data(str(port))
    return 0


def _forward(cli: CommandContext, api: Api, job: JobView, pairs: Sequence[PortPair]) -> int:
    with ExitStack() as forwards:
        print_error = _ErrorPrinter(cli)
        for remote, local in pairs:
            _print_forward(cli, forwards.enter_context(PortForward(api.transport, job.id, remote, local, print_error)))
        try:
            for frame in api.stream(job.id, notice=cli.out.warn):
                if isinstance(frame, JobFrame):
                    job = frame.job
        except KeyboardInterrupt:
            return 130
    cli.out.say(f"{job.display_name} has ended: {job.status}.")
    return 0


def _print_forward(cli: CommandContext, forward: PortForward) -> None:
    if cli.out.as_json:
        cli.out.json({"port": forward.remote, "host": HOST, "local": forward.local, "url": forward.url})
    elif cli.out.quiet:
        cli.out.data(f"{HOST}:{forward.local}")
    else:
        cli.out.say(f"{forward.url} forwards to port {forward.remote} of the job; Ctrl-C stops it.")


class _ErrorPrinter:
    """Prints each connection error once: a browser opens dozens of connections."""

    def __init__(self, cli: CommandContext) -> None:
        self._cli = cli
        self._said: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, error: CrucibleError) -> None:
        with self._lock:
            if error.what in self._said:
                return
            self._said.add(error.what)
        self._cli.out.warn(str(error))


def parse_pair(text: str) -> PortPair:
    remote, colon, local = text.partition(":")
    if not (_is_port(remote, 1) and (not colon or _is_port(local, 0))):
        raise BadInput(
            f"{text!r} is not a port.",
            why="It must be a port of the job, 1 to 65535, optionally followed by a colon and a local port.",
            fix="For example 8888, 8888:9999, or 8888:0 for any free port.",
        )
    return int(remote), int(local) if colon else None


def _is_port(text: str, least: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and least <= int(text) <= 65535
