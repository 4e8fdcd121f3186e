"""Sessions as the server sees them: where two lines meet, and who holds them."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from crucible.wire.sessions import Opening


class Line(Protocol):
    """Frames to and from somebody. Raises LineLost for one who takes nothing any more."""

    async def send(self, frame: bytes) -> None: ...
    async def receive(self) -> bytes | None:
        """None once he has gone."""
        ...


class Entrance(Protocol):
    def session(self, wanted: Opening) -> AbstractAsyncContextManager[Line]:
        """The agent's line, once it has come; the session ends with this.

        A job that is starting is waited for. Raises Conflict, TooManyTries, TimedOut.
        """
        ...


class Meeting(Protocol):
    """A session whose agent is expected: `came` takes its line, and when it is `over` the agent may go."""

    @property
    def came(self) -> asyncio.Future[Line]: ...
    @property
    def over(self) -> asyncio.Event: ...
