"""The one clock that all processes on a database share."""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import Connection

SERVER = "server clock"
"""Key in `connection.info`: what to add to this process's monotonic clock to get the server's time."""


def now(connection: Connection, own: Callable[[], float]) -> float:
    """Seconds since the epoch: the server's where there is one, else this process's `own`.

    For what several processes compare: claims and roles. SQLite lives on the computer of its only process, so
    there it is `own`, which a simulation makes virtual. Asks nobody: the server's time came with BEGIN.
    """
    ahead: float | None = connection.info.get(SERVER)
    return own() if ahead is None else ahead + time.monotonic()
