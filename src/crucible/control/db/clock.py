"""The one clock that all processes on a database share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sqlalchemy import Connection

SERVER = "server clock"
"""Key in `connection.info`: what to add to `steady()` to get the server's time."""
TRUSTED_SECONDS = 60.0


def boot_seconds() -> float:
    """Seconds on a clock that nobody sets, and that goes on while the computer sleeps."""
    # macOS has no CLOCK_BOOTTIME; its CLOCK_MONOTONIC goes on, unlike what time.monotonic() reads there.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class ServerClock:
    """The server's time as this process knows it: `Clock` for all that several processes compare.

    Every word from the server says what time it was there at least. Of those of the last minute the one that
    came quickest counts.
    """

    def __init__(self) -> None:
        self._ahead: float | None = None
        self._since = 0.0

    def record_server_time(self, server_now: float) -> float:
        """What to add to `steady()` from now on."""
        here = boot_seconds()
        ahead = server_now - here
        if self._ahead is None or ahead > self._ahead or here - self._since > TRUSTED_SECONDS:
            self._ahead, self._since = ahead, here
        return self._ahead

    def now(self) -> float:
        return time.time() if self._ahead is None else self._ahead + boot_seconds()

    def steady(self) -> float:
        return boot_seconds()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def database_now(connection: Connection, own: Callable[[], float]) -> float:
    """Seconds since the epoch: the server's where there is one, else this process's `own`.

    For what several processes compare: claims and roles. SQLite lives on the computer of its only process, so
    there it is `own`, which a simulation makes virtual. Asks nobody: the server's time came with BEGIN.
    """
    ahead: float | None = connection.info.get(SERVER)
    return own() if ahead is None else ahead + boot_seconds()
