"""`crucible ports`: ports of this computer that lead to what a running job listens on."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated

import typer

from crucible.cli.jobs.exec import tell_wait
from crucible.cli.options.arguments import Job
from crucible.cli.session import Session
from crucible.client.api import Api
from crucible.client.sdk.job_lookup import find_job
from crucible.client.sdk.port_forward import HOST, PortForward, require_port
from crucible.core.errors import BadInput, CrucibleError
from crucible.core.views.frames import JobFrame
from crucible.core.views.jobs import JobView

Wanted = tuple[int, int | None]
"""A port of the job, and one of this computer; None for the same."""


def ports(
    ctx: typer.Context,
    job: Job,
    wanted: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PORT[:LOCAL]…]", help="A port of the job, and where it is to be here (0: any)."),
    ] = None,
) -> int:
    """Reach a running job's own ports at 127.0.0.1, until Ctrl-C or its end. Without ports: list them.

    Only ports that processes of the job listen on can be reached.
    """
    session = Session.of(ctx)
    asked = [_read(text) for text in wanted or ()]
    with session.api() as api:
        found = find_job(api, job)
        tell_wait(session, found)
        known = api.ports(found.id)
        if not asked:
            return _listed(session, known)
        for remote, _ in asked:
            require_port(known, remote)
        return _forwarded(session, api, found, asked)


def _listed(session: Session, known: Sequence[int]) -> int:
    if session.out.as_json:
        session.out.json({"items": [{"port": port} for port in known]})
    elif not known:
        session.out.say("No process of the job listens on a port.")
    for port in () if session.out.as_json else known:
        session.out.data(str(port))
    return 0


def _forwarded(session: Session, api: Api, job: JobView, asked: Sequence[Wanted]) -> int:
    with ExitStack() as held:
        tell = _Trouble(session)
        for remote, local in asked:
            _tell(session, held.enter_context(PortForward(api.transport, job.id, remote, local, tell)))
        try:
            for frame in api.stream(job.id, notice=session.out.warn):
                if isinstance(frame, JobFrame):
                    job = frame.job
        except KeyboardInterrupt:
            return 130
    session.out.say(f"{job.display_name} has ended: {job.status}.")
    return 0


def _tell(session: Session, forward: PortForward) -> None:
    if session.out.as_json:
        session.out.json({"port": forward.remote, "host": HOST, "local": forward.local, "url": forward.url})
    elif session.out.quiet:
        session.out.data(f"{HOST}:{forward.local}")
    else:
        session.out.say(f"{forward.url} leads to port {forward.remote} of the job; Ctrl-C ends it.")


class _Trouble:
    """Says what went wrong with a connection, each thing once; connections come by the dozen."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._said: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, error: CrucibleError) -> None:
        with self._lock:
            if error.what in self._said:
                return
            self._said.add(error.what)
        self._session.out.warn(str(error))


def _read(text: str) -> Wanted:
    remote, colon, local = text.partition(":")
    if not (_is_port(remote, 1) and (not colon or _is_port(local, 0))):
        raise BadInput(
            f"{text!r} names no ports.",
            why="It is a port of the job, from 1 to 65535, and after a colon one of this computer.",
            fix="For example 8888, 8888:9999, or 8888:0 for any that is free.",
        )
    return int(remote), int(local) if colon else None


def _is_port(text: str, least: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and least <= int(text) <= 65535
