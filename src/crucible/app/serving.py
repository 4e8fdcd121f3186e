"""Serving: everything a run of the server holds while it lasts, taken in order and given back."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from crucible.app.options import Options
from crucible.app.server import Build, Server
from crucible.core.errors import BadInput
from crucible.settings import Settings

if TYPE_CHECKING:
    import socket

    from crucible.server.home import StateFolder
    from crucible.server.security.exposure import Exposure


async def serve(
    options: Options,
    settings: Settings,
    build: Build,
    *,
    stop: asyncio.Event | None = None,
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """Serve until a signal, a request, or `stop`; `stopping` is called once that has come."""
    from crucible.control.db.sqlite.filesystem import mount_table, refuse_network
    from crucible.server.home import open_state_folder
    from crucible.server.http.listen import raise_file_limit
    from crucible.server.security.exposure import check_exposure

    reach = _reach(options, settings)
    check_exposure(reach)
    raise_file_limit()
    refuse_network(settings.home.value.resolve(), mount_table())
    home = open_state_folder(settings.home.value)
    stop = stop or asyncio.Event()
    with home.lock(), _journal(home, options), _bound(home, options) as (api, agents), _signals(stop):
        await Server(home, settings, reach, options.nonce, api, agents, stop, stopping).run(build)


def _reach(options: Options, settings: Settings) -> Exposure:
    from crucible.server.http.listen import TlsFiles
    from crucible.server.security.exposure import Exposure

    certificate, key = settings.tls_certificate.value, settings.tls_key.value
    if (certificate is None) != (key is None):
        raise BadInput("A certificate and its key go together.", fix="Set both tls_certificate and tls_key.")
    tls = TlsFiles(certificate, key) if certificate is not None and key is not None else None
    return Exposure(options.host, settings.public_url.value, tls, settings.behind_proxy.value)


@contextlib.contextmanager
def _bound(home: StateFolder, options: Options) -> Iterator[tuple[socket.socket, socket.socket]]:
    from crucible.server.http.listen import bind

    last = home.read_ports()
    with (
        bind(options.host, options.port, last.api) as api,
        bind(options.host, options.agents_port, last.agents) as agents,
    ):
        yield api, agents


@contextlib.contextmanager
def _journal(home: StateFolder, options: Options) -> Iterator[None]:
    """An embedded server's stderr is server.log already; another one writes to both."""
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
    """SIGTERM and SIGINT set `stop`."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
