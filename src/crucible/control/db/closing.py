"""The end of a database: begun once, waited for by everybody, and nothing is asked after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from crucible.control.db.port import DatabaseClosed


class CloseOnce:
    """`end` lets go of threads and connections; it is called once, in a thread of its own."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._ended: asyncio.Future[None] | None = None

    def check_open(self) -> None:
        """Raise DatabaseClosed once the end has begun."""
        if self._ended is not None:
            raise DatabaseClosed("The database is closed.", why="The server is stopping.")

    async def close(self) -> None:
        """Idempotent. Who gives up waiting does not hold up the end."""
        if self._ended is None:
            self._ended = asyncio.ensure_future(asyncio.to_thread(self._end))
        await asyncio.shield(self._ended)
