"""Run a server, from its options to the last response."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crucible import __version__
from crucible.app.options import Options
from crucible.core.errors import BadInput, Trouble
from crucible.core.people.identity import OWNER
from crucible.settings import Settings
from crucible.wire.http.client import unix_url
from crucible.wire.process import this_process

if TYPE_CHECKING:
    import socket

    from crucible.app.state_watch import StateWatch
    from crucible.control.control_plane import ControlPlane
    from crucible.server.folder_lock import FolderLock
    from crucible.server.http.listen import UvicornListener
    from crucible.server.security.exposure import Exposure
    from crucible.server.state_folder import StateFolder


STOP_SECONDS = 2.0
"""How long control's background tasks may take to stop; the listeners have a second of their own."""

Build = Callable[["StateFolder", Settings], "ControlPlane"]


@dataclass(frozen=True)
class Server:
    """One run of the server, from bound sockets to the last response.

    `agents` is the port for agents of other computers, `local_agents` the Unix socket for those of this one.
    `nonce` identifies the run. Setting `stop` ends it; `stopping` is called with the exit code when an end begins.
    """

    home: StateFolder
    lock: FolderLock
    settings: Settings
    reach: Exposure
    nonce: str
    api: socket.socket
    agents: socket.socket
    local_agents: socket.socket
    stop: asyncio.Event
    stopping: Callable[[int], None]
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to answer the agents' long polls when the server stops."""

    @property
    def _agents_url(self) -> str:
        return self.settings.agents_url.value or self.reach.url_of(self.agents)

    @property
    def _local_agents_url(self) -> str:
        """The address for agents on this computer: the Unix socket, whose folder proves who the server is.

        A port could be anybody's, and this computer need not reach the name of the certificate.
        """
        return self.settings.agents_url.value or self._agents_socket

    @property
    def _agents_socket(self) -> str:
        return unix_url(self.local_agents.getsockname())

    @property
    def _url(self) -> str:
        """The address for commands on this computer."""
        return self.reach.url_of(self.api)

    async def run(self, build: Build) -> None:
        import structlog

        from crucible.server.http.listen import AcceptErrorLog
        from crucible.server.security.exposure import check_people

        log = structlog.get_logger()
        asyncio.get_running_loop().set_exception_handler(AcceptErrorLog())
        self.home.remove_discovery()  # left behind by a killed server
        self.home.write_agents_url(self._agents_url, self._local_agents_url, self._agents_socket)
        control = build(self.home, self.settings)
        if self.reach.is_public:
            check_people(self.reach, await control.login.anyone_can_log_in())
        listeners = self._listeners(control)
        running = [asyncio.ensure_future(listener.run_until_stopped()) for listener in listeners]
        try:
            await control.start()
            await asyncio.gather(*(listener.listening.wait() for listener in listeners))
            watch = self._watch_state()
            await self._announce(control)
            log.info("ready", url=self._url, agents_url=self._local_agents_url, version=__version__)
            await self._until_stopped(running, watch)
        finally:
            await self._end(control, listeners, running)
        log.info("stopped")

    async def _until_stopped(self, running: Sequence[asyncio.Future[None]], watch: StateWatch) -> None:
        stop_wait: asyncio.Future[Any] = asyncio.ensure_future(self.stop.wait())
        loss_wait = asyncio.ensure_future(watch.until_lost())
        try:
            await asyncio.wait({*running, stop_wait, loss_wait}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop_wait.cancel()
            loss_wait.cancel()
        if loss_wait.done():
            loss = await loss_wait
            self.stopping(loss.exit_code)
            raise loss
        if not self.stop.is_set():
            await asyncio.gather(*(listener for listener in running if listener.done()))
            raise Trouble("A listener stopped unexpectedly.", fix="Start the server again.")
        self.stopping(0)

    def _watch_state(self) -> StateWatch:
        """Return the watch of the state folder and of the open database in it."""
        from crucible.app.state_watch import StateWatch
        from crucible.control.db.sqlite.open_files import OpenFiles

        in_folder = self.settings.database.value is None
        return StateWatch(self.lock, OpenFiles(str(self.home.database)) if in_folder else None)

    def _listeners(self, control: ControlPlane) -> tuple[UvicornListener, ...]:
        from crucible.server.agents.api import build_agents_api
        from crucible.server.api import build_api
        from crucible.server.http.listen import UvicornListener
        from crucible.server.security.exposure import agents_hosts
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
        agents = build_agents_api(control.agents, self.closing, agents_hosts(self.reach, self._agents_url))
        tls = self.reach.tls
        return (
            UvicornListener(api, self.api, tls=tls),
            UvicornListener(agents, self.agents, tls=tls),
            UvicornListener(agents, self.local_agents),
        )

    async def _announce(self, control: ControlPlane) -> None:
        from crucible.server.http.listen import port_of
        from crucible.server.state_folder import Discovery, Ports

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
                folder=self.lock.identity,
            )
        )

    async def _end(
        self, control: ControlPlane, listeners: Sequence[UvicornListener], running: Sequence[asyncio.Future[None]]
    ) -> None:
        """Remove the discovery file, answer waiting agents, stop the listeners, then control."""
        from crucible.control.db import DatabaseLost

        with contextlib.suppress(OSError, Trouble):  # a full or read-only disk; the next server removes the file
            self.lock.check()  # what is at the path of a lost folder is not ours
            self.home.remove_discovery()
        self.closing.set()
        for listener in listeners:
            listener.should_exit = True
        await asyncio.gather(*running, return_exceptions=True)
        with contextlib.suppress(TimeoutError, DatabaseLost):  # that it is lost was logged
            await asyncio.wait_for(control.stop(), STOP_SECONDS)


async def serve(
    options: Options,
    settings: Settings,
    build: Build,
    *,
    stop: asyncio.Event | None = None,
    stopping: Callable[[int], None] = lambda code: None,
) -> None:
    """Serve until a signal, a stop request or `stop`; `stopping` is called with the exit code when the end begins.

    Raises StateFolderLost or DatabaseLost when another server could take over, or nothing could be kept any more.
    """
    from crucible.control.db.sqlite.filesystem import mount_table, refuse_network
    from crucible.server.http.listen import raise_file_limit
    from crucible.server.security.exposure import check_agents_url, check_exposure
    from crucible.server.state_folder import open_state_folder

    reach = _exposure(options, settings)
    check_exposure(reach)
    check_agents_url(settings.agents_url.value)
    raise_file_limit()
    refuse_network(settings.home.value.resolve(), mount_table())
    home = open_state_folder(settings.home.value)
    stop = stop or asyncio.Event()
    with home.lock() as lock, _log_output(home, options), _bound(home, options) as sockets, _signals(stop):
        await Server(home, lock, settings, reach, options.nonce, *sockets, stop, stopping).run(build)


def _exposure(options: Options, settings: Settings) -> Exposure:
    from crucible.server.http.listen import TlsFiles
    from crucible.server.security.exposure import Exposure

    certificate, key = settings.tls_certificate.value, settings.tls_key.value
    if (certificate is None) != (key is None):
        raise BadInput(
            "A TLS certificate needs its key, and a key its certificate.", fix="Set both tls_certificate and tls_key."
        )
    tls = TlsFiles(certificate, key) if certificate is not None and key is not None else None
    return Exposure(options.host, settings.public_url.value, tls, settings.behind_proxy.value)


@contextlib.contextmanager
def _bound(home: StateFolder, options: Options) -> Iterator[tuple[socket.socket, socket.socket, socket.socket]]:
    """Bind the API's port, the agents' port and the agents' Unix socket."""
    from crucible.server.agents.unix_socket import bind_agents_socket
    from crucible.server.http.listen import bind

    last = home.read_ports()
    with (
        bind(options.host, options.port, last.api) as api,
        bind(options.host, options.agents_port, last.agents) as agents,
        bind_agents_socket(home.path) as local_agents,
    ):
        yield api, agents, local_agents


@contextlib.contextmanager
def _log_output(home: StateFolder, options: Options) -> Iterator[None]:
    """Set up the log. An embedded server's stderr is server.log already; other servers write to both."""
    from crucible.server.http.server_log import TeeWriter, configure_logging

    if options.embedded:
        configure_logging(sys.stderr)
        yield
        return
    with open(home.log, "a", encoding="utf-8") as file:
        configure_logging(TeeWriter(sys.stderr, file))
        try:
            yield
        finally:
            configure_logging(sys.stderr)


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    """Let SIGTERM and SIGINT set `stop`."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
