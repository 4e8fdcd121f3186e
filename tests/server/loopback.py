"""An ASGI app on a loopback port, served in a thread of its own beside the tests."""

from __future__ import annotations

import asyncio
import threading
from functools import cache
from typing import Any

from starlette.types import ASGIApp

from crucible.server.http.listen import TlsFiles, UvicornListener, bind, url_of


class Loopback:
    """The listener of one app; `url` is where it answers."""

    def __init__(self, app: ASGIApp, tls: TlsFiles | None = None) -> None:
        self._bound = bind("127.0.0.1", None)
        self._listener = UvicornListener(app, self._bound, tls=tls)
        self.url = url_of(self._bound)

    async def start(self) -> None:
        self._listener.config.load()
        self._listener.lifespan = self._listener.config.lifespan_class(self._listener.config)
        await self._listener.startup([self._bound])

    async def close(self) -> None:
        """End at once; requests that are being answered are not waited for."""
        self._listener.force_exit = True
        await self._listener.shutdown([self._bound])

    async def kill(self) -> None:
        """Break every connection in the middle of what it carries, as the end of a process does."""
        for server in self._listener.servers:
            server.close()
        for connection in tuple(self._listener.server_state.connections):
            connection.transport.abort()
        self._bound.close()

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """The requests that are being answered."""
        return self._listener.server_state.tasks


def transport_of(send: Any) -> asyncio.Transport:
    """Return the connection behind the `send` that uvicorn gives."""
    found: asyncio.Transport = send.__self__.transport
    return found


@cache
def background_loop() -> asyncio.AbstractEventLoop:
    """Return the one loop for all servers of this test process, in a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop
