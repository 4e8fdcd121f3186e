"""`python -m crucible.app`: run the server or a database command; the last line of a failure is its error as JSON."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence

from stamina.instrumentation import set_on_retry_hooks

from crucible import __version__
from crucible.app.control import build_control
from crucible.app.options import Parser, parse, with_home
from crucible.app.server import serve
from crucible.core.errors import CrucibleError
from crucible.settings import Settings, load_settings

HARD_STOP_SECONDS = 2.8

OnExit = Callable[[int], None]


def main(arguments: Sequence[str] | None = None, leave: OnExit = lambda code: None) -> int:
    """Run until stopped; return the exit code. `leave` is called with the code as soon as it is known."""
    set_on_retry_hooks(())  # conflicts are normal: do not log each retry
    try:
        args, flags = with_home(sys.argv[1:] if arguments is None else arguments)
        if args[:1] == ["db"]:
            return run_database_command(args[1:], load_settings(flags))
        asyncio.run(serve(parse(args), load_settings(flags), build_control, stopping=leave))
    except CrucibleError as error:
        leave(error.exit_code)
        return write_error(error)
    except Exception as error:  # noqa: BLE001 - the process that started us reads the last line in any case
        leave(CrucibleError.exit_code)
        return write_error(_unexpected(error))
    return 0


def exit_soon(code: int) -> None:
    """End this process soon, even if something hangs: a new server can start from any state."""
    limit = threading.Timer(HARD_STOP_SECONDS, os._exit, (code,))
    limit.daemon = True
    limit.start()


def write_error(error: CrucibleError) -> int:
    """Write the error as the last line, for the process that started this one; return its exit code."""
    parts = {"code": error.code, "what": error.what, "why": error.why, "fix": error.fix}
    sys.stderr.write(json.dumps({"error": parts}) + "\n")
    sys.stderr.flush()
    return error.exit_code


def _unexpected(error: Exception) -> CrucibleError:
    import structlog

    from crucible.server.http.server_log import configure_logging

    configure_logging(sys.stderr)  # without this, structlog would log the values of local variables
    structlog.get_logger().error("unexpected error", exc_info=error)
    return CrucibleError(
        "The server stopped with an unexpected error.",
        why=f"{type(error).__name__}: {error}",
        fix="Start it again. If it fails again, report it with the log lines above.",
    )


def run_database_command(arguments: Sequence[str], settings: Settings) -> int:
    """Run a `db` command without a server; print its result as a line of JSON and return the exit code."""
    from crucible.control.runtime.compose import deployment_id
    from crucible.control.upkeep import offline
    from crucible.server.state_folder import open_state_folder

    command = offline.parse(Parser(prog="python -m crucible.app db"), arguments)
    home = open_state_folder(settings.home.value)
    url = settings.database.value
    with contextlib.ExitStack() as stack:
        if command.exclusive:
            stack.enter_context(home.lock())
        source = offline.BackupSource(
            database=home.database if url is None else url.reveal(),
            deployment=deployment_id(home.load_key(settings.key_file.value)),  # creates the key if there is none
            store=settings.store.value or str(home.store),
            version=__version__,
        )
        result = offline.run(command, source, time.time())
    sys.stdout.write(json.dumps(result) + "\n")
    return 0
