"""The clock that all processes on one database share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sqlalchemy import Connection

SERVER = "server clock"
"""Key in `connection.info` of the seconds to add to `boot_seconds()` for the server's time."""
TRUSTED_SECONDS = 60.0
"""Age at which a measured offset is replaced by the next one."""


def boot_seconds() -> float:
    """Return seconds of a clock that is never set, and that runs on while the computer sleeps."""
    # macOS has no CLOCK_BOOTTIME. Its CLOCK_MONOTONIC runs on in sleep; the clock of time.monotonic() there does not.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class ServerClock:
    """A `Clock` with the database server's time, for times that several processes compare.

    A time that the server sent has passed by the time it arrives, so every response shows the least that the server's
    clock can be ahead of ours. The largest offset measured in the last minute counts: it had the shortest way.
    """

    def __init__(self) -> None:
        self._offset: float | None = None
        self._measured_at = 0.0

    def record_server_time(self, server_now: float) -> float:
        """Note a time that the server sent. Return the seconds to add to `boot_seconds()` for the server's time."""
        here = boot_seconds()
        offset = server_now - here
        if self._offset is None or offset > self._offset or here - self._measured_at > TRUSTED_SECONDS:
            self._offset, self._measured_at = offset, here
        return self._offset

    def now(self) -> float:
        return time.time() if self._offset is None else self._offset + boot_seconds()

    def steady(self) -> float:
        return boot_seconds()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def database_now(connection: Connection, own: Callable[[], float]) -> float:
    """Return seconds since the epoch by the database server's clock, or by `own` on SQLite.

    For times that several processes compare, such as claims and roles. SQLite has one process only, so its own clock
    serves, which a simulation makes virtual. Sends no query: the server's time came with BEGIN.
    """
    offset: float | None = connection.info.get(SERVER)
    return own() if offset is None else offset + boot_seconds()
