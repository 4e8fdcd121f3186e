"""`python -m crucible.app db`: one command on the database of a state folder, without a server."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Sequence

from crucible import __version__
from crucible.app.options import Parser
from crucible.settings import Settings


def work_on_database(arguments: Sequence[str], settings: Settings) -> int:
    """Do it, and answer with a line of JSON; the exit code."""
    from crucible.control.runtime.compose import deployment_id
    from crucible.control.upkeep import offline
    from crucible.server.home import open_state_folder

    wanted = offline.parse(Parser(prog="python -m crucible.app db"), arguments)
    home = open_state_folder(settings.home.value)
    named = settings.database.value
    source = offline.BackupSource(
        database=home.database if named is None else named.reveal(),
        deployment=deployment_id(home.load_key(settings.key_file.value)),
        store=settings.store.value or str(home.store),
        version=__version__,
    )
    with contextlib.ExitStack() as held:
        if wanted.exclusive:
            held.enter_context(home.lock())
        answer = offline.run(wanted, source, time.time())
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0
