"""`python -m crucible.app`: runs what the command line asks for, and tells on its last line why it could not."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence

from stamina.instrumentation import set_on_retry_hooks

from crucible.app.control import build_control
from crucible.app.database import work_on_database
from crucible.app.options import parse, with_home
from crucible.app.serving import serve
from crucible.core.errors import CrucibleError
from crucible.settings import load_settings

HARD_STOP_SECONDS = 2.8

Leave = Callable[[int], None]


def main(arguments: Sequence[str] | None = None, leave: Leave = lambda code: None) -> int:
    """Run until told to stop; the exit code. `leave` hears the code as soon as it is known."""
    set_on_retry_hooks(())  # conflicts are everyday: no line for each
    try:
        given, flags = with_home(sys.argv[1:] if arguments is None else arguments)
        if given[:1] == ["db"]:
            return work_on_database(given[1:], load_settings(flags))
        asyncio.run(serve(parse(given), load_settings(flags), build_control, stopping=lambda: leave(0)))
    except CrucibleError as error:
        leave(error.exit_code)
        return tell(error)
    except Exception as error:  # noqa: BLE001 - whoever started us reads the last line, whatever happened
        leave(CrucibleError.exit_code)
        return tell(_unexpected(error))
    return 0


def leave_soon(code: int) -> None:
    """End this process in a moment, whatever still hangs: the next can start from any state it leaves."""
    limit = threading.Timer(HARD_STOP_SECONDS, os._exit, (code,))
    limit.daemon = True
    limit.start()


def tell(error: CrucibleError) -> int:
    """Write the error as the last line for whoever started this process; its exit code."""
    parts = {"code": error.code, "what": error.what, "why": error.why, "fix": error.fix}
    sys.stderr.write(json.dumps({"error": parts}) + "\n")
    sys.stderr.flush()
    return error.exit_code


def _unexpected(error: Exception) -> CrucibleError:
    import structlog

    from crucible.server.http.server_log import configure_logging

    configure_logging(sys.stderr)  # until then structlog shows the values of variables
    structlog.get_logger().error("unexpected error", exc_info=error)
    return CrucibleError(
        "The server ended by an error it does not know.",
        why=f"{type(error).__name__}: {error}",
        fix="Start it again; if it stays, report it with the lines above.",
    )
