"""The composition root: settings become a running server.

`python -m crucible.app serve` holds the state folder's lock, listens on two ports in one event loop,
announces itself in server.json and runs until SIGTERM, SIGINT or a request to stop. When it cannot start, its
last line is a JSON object `{"error": {code, what, why, fix}}` and its exit code is the error's.

`python -m crucible.app db backup|restore|confirm` works on the database of a state folder without a server, and
answers with one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from crucible import __version__
from crucible.core.errors import BadInput, CrucibleError, Trouble
from crucible.settings import Settings, load_settings
from crucible.wire.process import this_process

if TYPE_CHECKING:
    import socket

    from crucible.core.openid import Client
    from crucible.server.home import Home
    from crucible.server.listen import Listener
    from crucible.server.ports import ControlPort
    from crucible.server.reach import Reach
    from crucible.storage import StoreOptions

STOP_SECONDS = 2.0
"""How long control's loops get to end; the listeners have their own second."""
HARD_STOP_SECONDS = 2.8
RARELY = (20_000, 20, 20)
"""When the collector looks: a thousand sockets have many objects and next to no garbage, and wait while it does."""

Build = Callable[["Home", Settings], "ControlPort"]
Leave = Callable[[int], None]


@dataclass(frozen=True)
class Options:
    """`port` and `agents_port` None: those of the last run if they are free, else any."""

    embedded: bool = False
    nonce: str = ""
    host: str = "127.0.0.1"
    port: int | None = None
    agents_port: int | None = None


def main(arguments: Sequence[str] | None = None, leave: Leave = lambda code: None) -> int:
    """Run until told to stop; the exit code. `leave` hears the code as soon as it is known."""
    given = sys.argv[1:] if arguments is None else arguments
    gc.disable()  # until it is ready: starting makes hundreds of thousands of objects, and all of them stay
    try:
        if given[:1] == ["db"]:
            return database(given[1:], load_settings())
        asyncio.run(serve(parse(arguments), load_settings(), build_control, stopping=lambda: leave(0)))
    except CrucibleError as error:
        leave(error.exit_code)
        return tell(error)
    except Exception as error:  # noqa: BLE001 - whoever started us reads the last line, whatever happened
        leave(CrucibleError.exit_code)
        return tell(_unexpected(error))
    finally:
        gc.enable()
    return 0


def leave_soon(code: int) -> None:
    """End this process in a moment, whatever still hangs: the next can start from any state it leaves."""
    limit = threading.Timer(HARD_STOP_SECONDS, os._exit, (code,))
    limit.daemon = True
    limit.start()


def build_control(home: Home, settings: Settings) -> ControlPort:
    """The control plane that the settings describe. Opens the database and the store; starts nothing."""
    from crucible.control.compose import Embedded, embedded_control
    from crucible.control.orders import Terms
    from crucible.control.room import Bounds

    _arm_crashpoint()
    openid = _openid(settings)
    database = settings.database.value
    return embedded_control(
        Embedded(
            home=home.path,
            database=home.database if database is None else database.reveal(),
            store=settings.store.value or str(home.store),
            store_options=_store_options(settings),
            agents_url_file=home.agents_url_file,
            local_folder=settings.local_folder.value or home.path,
            rehearsal_state=settings.rehearsal_state.value,
            terms=Terms(settings.lease_seconds.value, settings.machine_seconds.value),
            bounds=Bounds(settings.disk_reserve.value or 0, settings.store_quota.value),
            prune_after=settings.prune_after.value,
            backends=settings.backends.value,
            channel=settings.channel.value,
            neighbours=settings.shared_computer.value,
            models_python=settings.models_python.value,
            webhook_hosts=settings.webhook_hosts.value,
            openid=openid,
            key=home.key(settings.key_file.value),
            secrets_keys=home.beside_key("secrets.keys", settings.key_file.value),
            python=sys.executable,
            uv=_find_uv(),
            bundle_limit=settings.bundle_limit.value,
            environ=dict(os.environ),
        )
    )


def _store_options(settings: Settings) -> StoreOptions:
    from crucible.storage import StoreOptions

    return StoreOptions(
        endpoint=settings.store_endpoint.value,
        region=settings.store_region.value,
        access_key=settings.store_access_key.value,
        secret_key=settings.store_secret_key.value,
    )


def _openid(settings: Settings) -> Client | None:
    """Who the server is at the OpenID provider; None if none is set. Half an answer is BadInput."""
    from crucible.core.openid import Client, checked_client

    issuer, client = settings.oidc_issuer.value, settings.oidc_client_id.value
    if issuer is None and client is None:
        return None
    if issuer is None or client is None:
        raise BadInput("A provider and who we are there go together.", fix="Set both oidc_issuer and oidc_client_id.")
    return checked_client(
        Client(
            issuer,
            client,
            settings.oidc_client_secret.value,
            settings.oidc_name.value,
            settings.oidc_domains.value,
            settings.oidc_create_users.value,
        )
    )


def _find_uv() -> str | None:
    from uv import find_uv_bin

    try:
        return str(find_uv_bin())
    except FileNotFoundError:
        return None


def _arm_crashpoint() -> None:
    """For fault tests: the process kills itself where CRUCIBLE_CRASHPOINT says."""
    name = os.environ.get("CRUCIBLE_CRASHPOINT")
    if name:
        from crucible.control.crashpoints import arm

        arm(name, lambda: os.kill(os.getpid(), signal.SIGKILL))


def parse(arguments: Sequence[str] | None) -> Options:
    """The command line as Options; raises BadInput."""
    parser = _Parser(prog="python -m crucible.app")
    serving = parser.add_subparsers(dest="command", required=True).add_parser("serve")
    serving.add_argument("--embedded", action="store_true", help="output already goes to server.log")
    serving.add_argument("--nonce", default="", help="tells this run from others; made unless given")
    serving.add_argument("--host", default=Options.host, help="a loopback address; another needs TLS and users")
    serving.add_argument("--port", type=_port, default=None)
    serving.add_argument("--agents-port", type=_port, default=None)
    given = parser.parse_args(arguments)
    nonce = given.nonce or secrets.token_hex(8)
    return Options(given.embedded, nonce, given.host, given.port, given.agents_port)


def database(arguments: Sequence[str], settings: Settings) -> int:
    """One command on the database of a state folder, its answer a line of JSON."""
    from crucible.control import offline
    from crucible.control.compose import deployment_id
    from crucible.server.home import open_home

    wanted = offline.parse(_Parser(prog="python -m crucible.app db"), arguments)
    home = open_home(settings.home.value)
    named = settings.database.value
    source = offline.Source(
        database=home.database if named is None else named.reveal(),
        deployment=deployment_id(home.key(settings.key_file.value)),
        store=settings.store.value or str(home.store),
        version=__version__,
    )
    with contextlib.ExitStack() as held:
        if wanted.alone:
            held.enter_context(home.locked())
        answer = offline.run(wanted, source, time.time())
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def tell(error: CrucibleError) -> int:
    """Write the error as the last line for whoever started this process; its exit code."""
    parts = {"code": error.code, "what": error.what, "why": error.why, "fix": error.fix}
    sys.stderr.write(json.dumps({"error": parts}) + "\n")
    sys.stderr.flush()
    return error.exit_code


def _unexpected(error: Exception) -> CrucibleError:
    import structlog

    structlog.get_logger().error("unexpected error", exc_info=error)
    return CrucibleError(
        "The server ended by an error it does not know.",
        why=f"{type(error).__name__}: {error}",
        fix="Start it again; if it stays, report it with the lines above.",
    )


async def serve(
    options: Options,
    settings: Settings,
    build: Build,
    *,
    stop: asyncio.Event | None = None,
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """Serve until a signal, a request, or `stop`; `stopping` is called once that has come."""
    from crucible.server.loading import without

    with without("rich"):  # with which structlog draws on terminals, and which takes a tenth of a start
        import structlog  # noqa: F401

    from crucible.control.db.filesystem import mount_table, refuse_network
    from crucible.server.home import open_home
    from crucible.server.listen import allow_files
    from crucible.server.reach import check_reach

    reach = _reach(options, settings)
    check_reach(reach)
    allow_files()
    refuse_network(settings.home.value.resolve(), mount_table())
    home = open_home(settings.home.value)
    stop = stop or asyncio.Event()
    with home.locked(), _journal(home, options), _bound(home, options) as (api, agents), _signals(stop):
        await _Server(home, settings, options, reach, api, agents, stop, stopping).run(build)


def _reach(options: Options, settings: Settings) -> Reach:
    from crucible.server.listen import Tls
    from crucible.server.reach import Reach

    certificate, key = settings.tls_certificate.value, settings.tls_key.value
    if (certificate is None) != (key is None):
        raise BadInput("A certificate and its key go together.", fix="Set both tls_certificate and tls_key.")
    tls = Tls(certificate, key) if certificate is not None and key is not None else None
    return Reach(options.host, settings.public_url.value, tls, settings.behind_proxy.value)


class _Server:
    """One run: from bound sockets to the last answer."""

    def __init__(
        self,
        home: Home,
        settings: Settings,
        options: Options,
        reach: Reach,
        api: socket.socket,
        agents: socket.socket,
        stop: asyncio.Event,
        stopping: Callable[[], None],
    ) -> None:
        self._home = home
        self._settings = settings
        self._options = options
        self._reach = reach
        self._api = api
        self._agents = agents
        self._stop = stop
        self._stopping = stopping
        self._closing = asyncio.Event()

    @property
    def _agents_url(self) -> str:
        return self._settings.agents_url.value or self._reach.url_of(self._agents)

    @property
    def _url(self) -> str:
        """How a command on this computer finds it."""
        return self._reach.url_of(self._api)

    async def run(self, build: Build) -> None:
        import structlog

        from crucible.server.listen import AcceptTrouble
        from crucible.server.reach import check_people

        log = structlog.get_logger()
        asyncio.get_running_loop().set_exception_handler(AcceptTrouble())
        self._home.withdraw()  # what a server that was killed left behind
        self._home.write_agents_url(self._agents_url)
        control = build(self._home, self._settings)
        if self._reach.beyond:
            check_people(self._reach, await control.people.door.anybody())
        listeners = self._listeners(control)
        running = [asyncio.ensure_future(listener.run_until_stopped()) for listener in listeners]
        try:
            await control.start()
            await asyncio.gather(*(listener.listening.wait() for listener in listeners))
            await self._announce(control)
            _keep_what_is_there()
            log.info("ready", url=self._url, agents_url=self._agents_url, version=__version__)
            await self._until_stopped(running)
        finally:
            await self._end(control, listeners, running)
        log.info("stopped")

    async def _until_stopped(self, running: Sequence[asyncio.Future[None]]) -> None:
        told: asyncio.Future[Any] = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({*running, told}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
        if not self._stop.is_set():
            await asyncio.gather(*(listener for listener in running if listener.done()))
            raise Trouble("A listener ended by itself.", fix="Start the server again.")
        self._stopping()

    def _listeners(self, control: ControlPort) -> tuple[Listener, Listener]:
        from crucible.server.listen import Listener
        from crucible.server.loading import without

        with without("pydantic.v1"):  # whose models FastAPI looks for and refuses
            from crucible.server.agents import build_agents_api
            from crucible.server.api import build_api
            from crucible.server.proxies import trusted

        api = build_api(
            control,
            token=self._home.token().reveal(),
            nonce=self._options.nonce,
            version=__version__,
            home=str(self._home.path),
            on_stop=self._stop.set,
            agents_url=self._agents_url,
            bundle_limit=self._settings.bundle_limit.value,
            hosts=self._reach.hosts,
            secure=self._reach.encrypted,
            public_url=self._reach.public_url or "",
            proxies=trusted(self._settings.proxies.value),
        )
        agents = build_agents_api(control.agents, self._closing)
        tls = self._reach.tls
        return Listener(api, self._api, tls=tls), Listener(agents, self._agents, connections=1000, tls=tls)

    async def _announce(self, control: ControlPort) -> None:
        from crucible.server.home import Discovery, Ports
        from crucible.server.listen import port_of

        me = this_process()
        deployment = str((await control.status()).get("deployment", ""))
        self._home.keep_ports(Ports(port_of(self._api), port_of(self._agents)))
        self._home.announce(
            Discovery(
                url=self._url,
                agents_url=self._agents_url,
                pid=me.pid,
                start_time=me.start_time,
                version=__version__,
                nonce=self._options.nonce,
                deployment=deployment,
            )
        )

    async def _end(
        self, control: ControlPort, listeners: Sequence[Listener], running: Sequence[asyncio.Future[None]]
    ) -> None:
        """Nobody finds us any more; those who wait are answered; then the loops end."""
        with contextlib.suppress(OSError):  # a disk that takes nothing; the next server does it
            self._home.withdraw()
        self._closing.set()
        for listener in listeners:
            listener.should_exit = True
        await asyncio.gather(*running, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(control.stop(), STOP_SECONDS)


def _keep_what_is_there() -> None:
    """What starting made is never garbage: from now on the collector looks at what comes later alone."""
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(*RARELY)
        gc.enable()


@contextlib.contextmanager
def _bound(home: Home, options: Options) -> Iterator[tuple[socket.socket, socket.socket]]:
    from crucible.server.listen import bind

    last = home.ports()
    with (
        bind(options.host, options.port, last.api) as api,
        bind(options.host, options.agents_port, last.agents) as agents,
    ):
        yield api, agents


@contextlib.contextmanager
def _journal(home: Home, options: Options) -> Iterator[None]:
    """An embedded server's stderr is server.log already; another one writes to both."""
    from crucible.server.journal import Tee, configure

    if options.embedded:
        configure(sys.stderr)
        yield
        return
    with open(home.log, "a", encoding="utf-8") as file:
        configure(Tee(sys.stderr, file))
        try:
            yield
        finally:
            configure(sys.stderr)


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


def _port(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 65535:
        raise ValueError(text)
    return number


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message[:1].upper()}{message[1:]}.", fix="See `python -m crucible.app serve --help`.")


if __name__ == "__main__":
    sys.exit(main(leave=leave_soon))
