"""A server: one run of it, from bound sockets to the last answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crucible import __version__
from crucible.core.errors import Trouble
from crucible.core.people.identity import OWNER
from crucible.settings import Settings
from crucible.wire.process import this_process

if TYPE_CHECKING:
    import socket

    from crucible.control.control_plane import ControlPlane
    from crucible.server.home import StateFolder
    from crucible.server.http.listen import UvicornListener
    from crucible.server.security.exposure import Exposure

STOP_SECONDS = 2.0
"""How long control's loops get to end; the listeners have their own second."""

Build = Callable[["StateFolder", Settings], "ControlPlane"]


@dataclass(frozen=True)
class Server:
    """One run: from bound sockets to the last answer.

    `nonce` tells it from other runs. `stop` ends it; `stopping` is called once it is to end.
    """

    home: StateFolder
    settings: Settings
    reach: Exposure
    nonce: str
    api: socket.socket
    agents: socket.socket
    stop: asyncio.Event
    stopping: Callable[[], None]
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when agents that wait for news are to be answered."""

    @property
    def _agents_url(self) -> str:
        return self.settings.agents_url.value or self.reach.url_of(self.agents)

    @property
    def _url(self) -> str:
        """How a command on this computer finds it."""
        return self.reach.url_of(self.api)

    async def run(self, build: Build) -> None:
        import structlog

        from crucible.server.http.listen import AcceptErrorLog
        from crucible.server.security.exposure import check_people

        log = structlog.get_logger()
        asyncio.get_running_loop().set_exception_handler(AcceptErrorLog())
        self.home.remove_discovery()  # what a server that was killed left behind
        self.home.write_agents_url(self._agents_url)
        control = build(self.home, self.settings)
        if self.reach.is_public:
            check_people(self.reach, await control.login.anyone_can_log_in())
        listeners = self._listeners(control)
        running = [asyncio.ensure_future(listener.run_until_stopped()) for listener in listeners]
        try:
            await control.start()
            await asyncio.gather(*(listener.listening.wait() for listener in listeners))
            await self._announce(control)
            log.info("ready", url=self._url, agents_url=self._agents_url, version=__version__)
            await self._until_stopped(running)
        finally:
            await self._end(control, listeners, running)
        log.info("stopped")

    async def _until_stopped(self, running: Sequence[asyncio.Future[None]]) -> None:
        told: asyncio.Future[Any] = asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait({*running, told}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
        if not self.stop.is_set():
            await asyncio.gather(*(listener for listener in running if listener.done()))
            raise Trouble("A listener ended by itself.", fix="Start the server again.")
        self.stopping()

    def _listeners(self, control: ControlPlane) -> tuple[UvicornListener, UvicornListener]:
        from crucible.server.agents.api import build_agents_api
        from crucible.server.api import build_api
        from crucible.server.http.listen import UvicornListener
        from crucible.server.security.proxies import trusted_networks

        api = build_api(
            control,
            token=self.home.load_token().reveal(),
            nonce=self.nonce,
            version=__version__,
            home=os.fsencode(self.home.path).decode(errors="replace"),
            on_stop=self.stop.set,
            agents_url=self._agents_url,
            bundle_limit=self.settings.bundle_limit.value,
            hosts=self.reach.hosts,
            secure=self.reach.is_encrypted,
            public_url=self.reach.public_url or "",
            proxies=trusted_networks(self.settings.proxies.value),
        )
        agents = build_agents_api(control.agents, self.closing)
        tls = self.reach.tls
        return UvicornListener(api, self.api, tls=tls), UvicornListener(agents, self.agents, connections=1000, tls=tls)

    async def _announce(self, control: ControlPlane) -> None:
        from crucible.server.home import Discovery, Ports
        from crucible.server.http.listen import port_of

        me = this_process()
        deployment = (await control.maintenance.status(OWNER)).deployment
        self.home.write_ports(Ports(port_of(self.api), port_of(self.agents)))
        self.home.write_discovery(
            Discovery(
                url=self._url,
                agents_url=self._agents_url,
                pid=me.pid,
                start_time=me.start_time,
                version=__version__,
                nonce=self.nonce,
                deployment=deployment,
            )
        )

    async def _end(
        self, control: ControlPlane, listeners: Sequence[UvicornListener], running: Sequence[asyncio.Future[None]]
    ) -> None:
        """Nobody finds us any more; those who wait are answered; then the loops end."""
        with contextlib.suppress(OSError):  # a disk that takes nothing; the next server does it
            self.home.remove_discovery()
        self.closing.set()
        for listener in listeners:
            listener.should_exit = True
        await asyncio.gather(*running, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(control.stop(), STOP_SECONDS)
