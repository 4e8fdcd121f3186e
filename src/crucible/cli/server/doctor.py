"""`crucible doctor`: what is well, what is not, and how to mend it."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from crucible import __version__
from crucible.cli.session import Session
from crucible.client.server.doctor import Check, CheckStatus, SystemInfo, check_machine
from crucible.client.server.embedded import last_error
from crucible.core.errors import CrucibleError
from crucible.core.views.server import ServerView

_MARKS = {CheckStatus.OK: "ok", CheckStatus.INFO: "-", CheckStatus.WARNING: "warning", CheckStatus.BROKEN: "BROKEN"}


def doctor(ctx: typer.Context) -> int:
    """Check this installation and say what to mend. Starts nothing; exit code 1 if something is broken."""
    session = Session.of(ctx)
    checks = [*check_machine(SystemInfo(session.environ), session.settings.home.value), *_server(session)]
    broken = [check for check in checks if check.state is CheckStatus.BROKEN]
    if session.out.as_json:
        session.out.json({"version": __version__, "ok": not broken, "checks": [c.as_json() for c in checks]})
    else:
        session.out.table(("CHECK", "STATE", "DETAIL"), [(c.name, _MARKS[c.state], c.detail) for c in checks])
        for check in checks:
            if check.fix:
                session.out.data(f"\n{check.name}: {check.fix}")
    return 1 if broken else 0


def _server(session: Session) -> Iterator[Check]:
    try:
        with session.api_if_up() as api:
            if api is None:
                yield _down(session)
                return
            about = api.server()
            yield _up(api.endpoint.url, about, named=session.settings.server.value is not None)
            yield Check("database", CheckStatus.OK, f"open; {about.running} running, {about.queued} queued")
    except CrucibleError as error:
        detail = " ".join(part for part in (error.what, error.why) if part)
        yield Check("server", CheckStatus.BROKEN, detail, error.fix)


def _up(url: str, about: ServerView, *, named: bool) -> Check:
    shown = f"up at {url}, version {about.version}"
    if about.version == __version__:
        return Check("server", CheckStatus.OK, shown)
    fix = "Bring client and server to one version." if named else "The next command restarts it."
    return Check("server", CheckStatus.WARNING, f"{shown}, while this is {__version__}", fix)


def _down(session: Session) -> Check:
    """Not being up is no fault, but having failed to start is."""
    if "CRUCIBLE_JOB_ID" in session.environ:
        fix = "To use one from inside the job, name it with CRUCIBLE_SERVER and CRUCIBLE_TOKEN."
        return Check("server", CheckStatus.INFO, "none is named, and inside a job none is started", fix)
    failed = last_error(session.embedded.log)
    if failed is None:
        return Check("server", CheckStatus.INFO, "not up; the first command that needs it starts it")
    return Check("server", CheckStatus.WARNING, f"not up; the last start failed: {failed.what}", failed.fix)
