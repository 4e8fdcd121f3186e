"""Build the control plane of one process, on a state folder or on a PostgreSQL database that processes share."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import structlog
from sqlalchemy import Connection

from crucible import __version__
from crucible.backends.bootstrap import AgentFile
from crucible.backends.context import BackendContext, today
from crucible.backends.node_identity import own_node_id
from crucible.backends.settings import BackendSettings, MissingSettings
from crucible.catalog import Library
from crucible.catalog.sources import KEYS
from crucible.control.agents.agent_file import build_agent
from crucible.control.connections.factory import BackendFactory, make_with
from crucible.control.connections.live import LiveBackends
from crucible.control.control_plane import ControlPlane
from crucible.control.db import DatabaseMissing, Db, open_database
from crucible.control.db.migrate import is_postgres
from crucible.control.jobs.queue_limit import QueueLimit
from crucible.control.machines.machine_factory import LeaseTerms
from crucible.control.objects.quota import QuotaLimits
from crucible.control.resources.models import ModelsPython
from crucible.control.runtime.deployment_check import DeploymentCheck
from crucible.control.runtime.durations import TimedDb
from crucible.control.runtime.host_id import read_host_id
from crucible.control.runtime.ports import Calls, Clock, Ports, Wakeups
from crucible.control.runtime.services import Deployment
from crucible.control.runtime.system_ports import LocalWakeups, SystemClock, SystemIds, SystemRandom, ThreadCalls
from crucible.core.channels import Channel
from crucible.core.ids import Prefix, make_id
from crucible.core.people.openid import OpenIdClient
from crucible.core.secret import Secret
from crucible.core.settings_source import SettingsSource
from crucible.integrations.addresses import Exceptions, Guard, look_up
from crucible.integrations.webhook import Webhooks
from crucible.storage import StorageError, StoreOptions, open_store
from crucible.storage.layout import FOLDERS
from crucible.wire.documents.bootstrap import AGENTS_ADDRESS_FILE

log = structlog.get_logger(__name__)

WORKER = "embedded"
"""The worker's name on SQLite: only one process holds the state folder's lock."""
MAX_HOST_CHARS = 40
STORE_LOOK_SECONDS = 5.0
"""How long the first start of a deployment waits for the store."""
RESOLVE, RESOLVE_SECONDS = "names of hosts", 10.0
_STARTED = secrets.token_hex(6)
"""Makes a process's name unique: two computers, or one after a restart, may have the same name and pid."""


@dataclass(frozen=True)
class AgentsUrlFile:
    """A file from which agents on this computer read, at every call, the URL of the server on duty."""

    path: Path
    url: str

    def write(self) -> None:
        """Replace the file atomically if it has another URL. Log a failure; the next renewal of duties retries."""
        try:
            if self._read() != self.url:
                fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
                fresh.write_text(self.url, encoding="utf-8")
                fresh.replace(self.path)
        except OSError as error:
            log.warning("the file that tells agents our URL cannot be written", path=str(self.path), why=str(error))

    def _read(self) -> str | None:
        try:
            return self.path.read_text(encoding="utf-8").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            return None


@dataclass(frozen=True)
class ControlOptions:
    """The settings and paths that the composition root passes.

    `database`: a file, or the URL of a PostgreSQL database. `store`: a folder or a URL. `local_folder`: of the machines
    on this computer; servers that share a database and a computer share it. `backends`: the names that the setting of
    that name has, which comes from `backends_by`; `backend_tables`: settings of backends from the configuration file.
    `models_python`: the Python whose model plugins are offered.
    """

    home: Path
    database: Path | str = field(repr=False)
    store: str
    store_options: StoreOptions
    agents_url_file: Path
    agents_address_file: Path
    agents_socket_file: Path
    local_folder: Path
    backends: tuple[str, ...]
    key: Secret
    python: str
    uv: str | None
    bundle_limit: int
    environ: dict[str, str] = field(repr=False)
    backends_by: str = "default"
    backend_tables: Mapping[str, SettingsSource] = field(default_factory=dict, repr=False)
    terms: LeaseTerms = LeaseTerms()
    quota: QuotaLimits = QuotaLimits()
    queue_limit: QueueLimit = QueueLimit()
    prune_after: float | None = None
    channel: Channel = Channel.HTTPS
    shared_computer: bool = False
    models_python: str | None = None
    secrets_keys: Path | None = None
    webhook_hosts: tuple[str, ...] = ()
    openid: OpenIdClient | None = None


def build_control(options: ControlOptions) -> ControlPlane:
    """Open database and store, and return the control plane. Starts nothing."""
    engine = _open_engine(options)
    ports = Ports(
        clock=engine.clock,
        ids=SystemIds(),
        random=SystemRandom(),
        db=TimedDb(engine.db, engine.clock),
        store=open_store(options.store, options.store_options),
        calls=ThreadCalls(),
        wakeups=engine.wakeups,
        worker=engine.worker,
    )
    options.local_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    agents_url = options.agents_url_file.read_text(encoding="utf-8").strip()
    local_agents_url = options.agents_address_file.read_text(encoding="utf-8").strip()
    address_file = AgentsUrlFile(options.local_folder / AGENTS_ADDRESS_FILE, local_agents_url)
    old_file = AgentsUrlFile(options.local_folder / "agents.url", agents_url)
    agent_file = build_agent(options.local_folder / "agent")
    factory = _factory(options, address_file.path, agent_file)
    shared = is_postgres(options.database)
    deployment = Deployment(
        id=deployment_id(options.key),
        key=options.key.reveal().encode(),
        agents_url=agents_url,
        local_agents_url=local_agents_url,
        scratch=options.home / "uploads",
        bundle_limit=options.bundle_limit,
        check=partial(_check_deployment, options),
        agent_file=agent_file,
        shared=shared,
        publish_agents_url=partial(_write_all, address_file, old_file),
        terms=options.terms,
        quota=options.quota,
        queue_limit=options.queue_limit,
        prune_after=options.prune_after,
        database=options.database,
        version=__version__,
        store_url=options.store,
        channel=options.channel,
        shared_computer=options.shared_computer,
        own_node=own_node_id(),
        models=ModelsPython(options.models_python, options.environ),
        secrets_keys=options.secrets_keys,
        post=_webhooks(options.webhook_hosts, ports.calls),
        factory=factory,
        openid=options.openid,
        catalog=options.home / "catalog",
        price_keys={name: Secret(key) for name, variable in KEYS.items() if (key := options.environ.get(variable))},
    )
    return ControlPlane(ports, _configured_backends(factory), deployment)


def _check_deployment(options: ControlOptions, conn: Connection, now: float, nearby: frozenset[str]) -> None:
    computer = read_host_id(options.local_folder) if nearby and is_postgres(options.database) else None
    DeploymentCheck(deployment_id(options.key), nearby, computer)(conn, now)


def _write_all(*files: AgentsUrlFile) -> None:
    for file in files:
        file.write()


def _webhooks(hosts: Iterable[str], calls: Calls) -> Webhooks:
    """Return the sender of webhooks. It resolves host names in a lane of their own: slow DNS delays no other work."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return await calls.run(RESOLVE, lambda: look_up(host, port), RESOLVE_SECONDS)

    return Webhooks(Guard(resolve, Exceptions.parse(hosts)), agent=f"crucible/{__version__}")


def deployment_id(key: Secret) -> str:
    """Return the deployment's id for tags: a hash of its key."""
    digest = hashlib.sha256(b"deployment:" + key.reveal().encode()).digest()
    return make_id(Prefix.DEPLOYMENT, int.from_bytes(digest[:6]), int.from_bytes(digest[6:16]))


@dataclass(frozen=True)
class _DatabaseEngine:
    db: Db
    clock: Clock
    wakeups: Wakeups
    worker: str


def _open_engine(options: ControlOptions) -> _DatabaseEngine:
    database = options.database
    db = open_database(database, before_create=lambda: _refuse_full_store(options))
    if not is_postgres(database):
        return _DatabaseEngine(db, SystemClock(), LocalWakeups(), WORKER)
    from crucible.control.db.postgres.database import PostgresDb
    from crucible.control.db.postgres.notify import PostgresWakeups

    assert isinstance(db, PostgresDb), "open_database decides by the URL too"
    return _DatabaseEngine(db, db.clock, PostgresWakeups(str(database)), process_name())


def _refuse_full_store(options: ControlOptions) -> None:
    """Raise DatabaseMissing if the store holds objects of a deployment: a new database would know nothing of them.

    Other objects may share the bucket. A store that cannot be reached says so later.
    """
    brief = replace(options.store_options, request_seconds=STORE_LOOK_SECONDS, retries=0)
    with contextlib.suppress(StorageError):
        store = open_store(options.store, brief)
        if not any(next(store.list(folder), None) for folder in FOLDERS):
            return
        if is_postgres(options.database):
            raise DatabaseMissing(
                f"The PostgreSQL database is empty, but the store {options.store} holds files of jobs.",
                why="It was emptied, or `database` names another one than before; a new one would know none of the "
                "jobs whose files are stored, and end the machines on which they run.",
                fix="Correct `database`, or restore a backup with `crucible db restore FILE`. For a new deployment, or "
                "to leave the jobs of a SQLite file behind, move the store away or set another with CRUCIBLE_STORE.",
            )
        raise DatabaseMissing(
            f"The database {options.database} is missing or empty, but the store {options.store} holds files of jobs.",
            why="The database was removed or emptied; a new one would know none of the jobs whose files are stored.",
            fix="Restore a backup with `crucible db restore FILE`. For an empty database, move the store away,"
            " or set another with CRUCIBLE_STORE.",
        )


def process_name() -> str:
    """Return a name that no other process has, on any computer, now or later."""
    return f"{platform.node()[:MAX_HOST_CHARS]}:{os.getpid()}:{_STARTED}"


def _factory(options: ControlOptions, agents_url_file: Path, agent_file: AgentFile) -> BackendFactory:
    library = Library(options.home / "catalog")
    context = BackendContext(
        settings=BackendSettings(),
        home=options.local_folder,
        agents_url_file=agents_url_file,
        agent_file=agent_file,
        python=options.python,
        uv=options.uv,
        environ=options.environ,
        catalog=lambda: library.stock(today()).catalog,
        agents_socket_file=options.agents_socket_file,
        deployment=deployment_id(options.key),
    )
    tables = options.backend_tables
    factory = BackendFactory(make_with(context), options.backends, options.backends_by, tables, options.environ)
    for name in tables:
        factory.model(name)  # raises UnknownName
    return factory


def _configured_backends(factory: BackendFactory) -> LiveBackends:
    """Return the backends that the setting `backends` names, without those whose settings are in the database."""
    live = LiveBackends()
    for name in factory.configured:
        with contextlib.suppress(MissingSettings):
            settings = factory.fill(name).settings
            live.put(name, factory.make(name, settings), settings, closing=False)
    return live
