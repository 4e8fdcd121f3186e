"""`crucible doctor`: check the installation and suggest fixes."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from crucible import __version__
from crucible.cli.context import CommandContext
from crucible.client.server.doctor import Check, CheckStatus, SystemInfo, check_machine
from crucible.client.server.embedded import last_error
from crucible.core.errors import CrucibleError
from crucible.core.views.server import ServerView

_MARKS = {CheckStatus.OK: "ok", CheckStatus.INFO: "-", CheckStatus.WARNING: "warning", CheckStatus.BROKEN: "BROKEN"}


def doctor(ctx: typer.Context) -> int:
    """Check the installation and suggest fixes. Starts nothing; exit code 1 if something is broken."""
    cli = CommandContext.from_typer(ctx)
    checks = [*check_machine(SystemInfo(cli.environ), cli.settings.home.value), *_check_server(cli)]
    broken = [check for check in checks if check.state is CheckStatus.BROKEN]
    if cli.out.as_json:
        cli.out.json({"version": __version__, "ok": not broken, "checks": [c.as_json() for c in checks]})
    else:
        cli.out.table(("CHECK", "STATE", "DETAIL"), [(c.name, _MARKS[c.state], c.detail) for c in checks])
        for check in checks:
            if check.fix:
                cli.out.data(f"\n{check.name}: {check.fix}")
    return 1 if broken else 0


def _check_server(cli: CommandContext) -> Iterator[Check]:
    try:
        with cli.api_if_up() as api:
            if api is None:
                yield _check_stopped(cli)
                return
            about = api.server()
            yield _check_running(api.endpoint.url, about, named=cli.settings.server.value is not None)
            yield Check("database", CheckStatus.OK, f"open; {about.running} running, {about.queued} queued")
    except CrucibleError as error:
        detail = " ".join(part for part in (error.what, error.why) if part)
        yield Check("server", CheckStatus.BROKEN, detail, error.fix)


def _check_running(url: str, about: ServerView, *, named: bool) -> Check:
    detail = f"up at {url}, version {about.version}"
    if about.version == __version__:
        return Check("server", CheckStatus.OK, detail)
    fix = "Install the same version on client and server." if named else "The next command restarts it."
    return Check("server", CheckStatus.WARNING, f"{detail}, while this is {__version__}", fix)


def _check_stopped(cli: CommandContext) -> Check:
    """A server that is not running is fine; one that failed to start is not."""
    if "CRUCIBLE_JOB_ID" in cli.environ:
        fix = "To use a server from inside the job, set CRUCIBLE_SERVER and CRUCIBLE_TOKEN."
        return Check("server", CheckStatus.INFO, "no server is named, and inside a job none is started", fix)
    hangs = cli.embedded_server.unresponsive()
    if hangs is not None:
        return Check("server", CheckStatus.BROKEN, f"{hangs.what} {hangs.why}", hangs.fix)
    failed = last_error(cli.embedded_server.log)
    if failed is None:
        return Check("server", CheckStatus.INFO, "not running; the first command that needs it starts it")
    return Check("server", CheckStatus.WARNING, f"not running; the last start failed: {failed.what}", failed.fix)
