"""The services of a control plane and how they depend on each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from crucible.backends.base import Backend
from crucible.backends.bootstrap import AgentFile
from crucible.catalog import Library
from crucible.catalog.sources import Sources
from crucible.control.agents.agent_downloads import AgentDownloads
from crucible.control.agents.agents import Agents, AgentServices
from crucible.control.agents.contacts import Contacts
from crucible.control.agents.ingest import Ingest
from crucible.control.agents.sessions import Sessions
from crucible.control.connections.disconnect import Disconnector
from crucible.control.connections.factory import BackendFactory
from crucible.control.connections.live import LiveBackends
from crucible.control.connections.redaction import RedactingCalls
from crucible.control.connections.store import ConnectionStore
from crucible.control.connections.sync import ConnectionSync
from crucible.control.hooks import Hooks, Notifier, Sender, WebhookTransport
from crucible.control.jobs.bulk import BulkJobs
from crucible.control.jobs.queue_limit import QueueLimit
from crucible.control.jobs.resume import Resumer
from crucible.control.jobs.submit import Submitter
from crucible.control.machines.janitor import Janitor
from crucible.control.machines.ledger import Ledger
from crucible.control.machines.machine_factory import LeaseTerms, MachineFactory
from crucible.control.machines.poller import MissingSince, Poller
from crucible.control.objects.bundles import Bundles
from crucible.control.objects.quota import QuotaLimits, StoreQuota
from crucible.control.objects.uploads import Uploads
from crucible.control.planning.forecast import Forecasts
from crucible.control.reconcile.duties import Duties
from crucible.control.reconcile.effects import LaunchContext, Performer
from crucible.control.reconcile.reconciler import Reconciler
from crucible.control.reconcile.unit_of_work import Writer
from crucible.control.resources.access import Access
from crucible.control.resources.catalog import Catalog
from crucible.control.resources.login import Login
from crucible.control.resources.models import ModelsPython
from crucible.control.resources.people import People
from crucible.control.resources.plans import Plans
from crucible.control.resources.tokens import Tokens
from crucible.control.runtime.ports import Ports
from crucible.control.scheduling.admission import Admission
from crucible.control.scheduling.backend_access import BackendAccess
from crucible.control.scheduling.backends import ConnectedBackends
from crucible.control.scheduling.offers import OfferBook
from crucible.control.scheduling.scheduler import Scheduler
from crucible.control.secrets import KEYS_FILE, Vault
from crucible.control.storelink import Invitations, Mailboxes, StoreLink, store_folder
from crucible.control.telemetry.feed import Feed
from crucible.control.telemetry.log_search import LogSearch
from crucible.control.telemetry.logs import Logs
from crucible.control.telemetry.tails import OutputTails
from crucible.control.upkeep.backup import Backup, BackupSource
from crucible.control.upkeep.retention import Retention
from crucible.core.channels import Channel
from crucible.core.people.openid import OpenIdClient
from crucible.core.secret import Secret

if TYPE_CHECKING:
    import httpx2

    from crucible.control.people.openid import OpenIdLogin


@dataclass(frozen=True)
class Deployment:
    """The deployment: the id in machines' tags, the key of agents' secrets, and the settings of this process."""

    id: str
    key: bytes = field(repr=False)
    agents_url: str
    scratch: Path
    bundle_limit: int
    agent_file: AgentFile | None = None
    """The agent for machines that download it; None if no backend has such machines."""
    check: Callable[[Connection, float, frozenset[str]], None] = lambda conn, now, nearby: None
    """Raises if this process must not work on this database with its backends that are `nearby`, on this computer."""
    shared: bool = False
    """Whether other processes may work on this database and with these backends."""
    publish_agents_url: Callable[[], None] = lambda: None
    """Publishes this process's URL to the agents on this computer. Called only if a backend has some there."""
    local_agents_url: str = ""
    """The URL for agents on this computer (default: `agents_url`)."""
    terms: LeaseTerms = LeaseTerms()
    store_url: str = ""
    """The URL of the store for agents; empty if they cannot reach it."""
    models: ModelsPython = ModelsPython()
    channel: Channel = Channel.HTTPS
    """The preferred channel of agents if both work."""
    quota: QuotaLimits = QuotaLimits()
    queue_limit: QueueLimit = QueueLimit()
    most_nodes: int = 1
    """The largest number of machines that a job may ask for. Only simulations set it."""
    prune_after: float | None = None
    """Seconds after a job's end at which its files are removed automatically; None: never."""
    database: Path | str = field(default="", repr=False)
    """The database to back up: a file or a PostgreSQL URL."""
    version: str = ""
    own_node: str = ""
    """The identity of this computer among nodes; empty if it is unknown."""
    shared_computer: bool = False
    """Whether jobs of several users may run on this computer as the same system user."""
    secrets_keys: Path | None = None
    """The file of the keys of secrets (default: in `scratch`)."""
    factory: BackendFactory = BackendFactory()
    """Makes the backends that are connected while the process runs."""
    post: WebhookTransport | None = None
    """Sends the messages of hooks (None: hooks are not called)."""
    openid: OpenIdClient | None = None
    """This deployment's client at an OpenID provider (None: no OpenID sign-in)."""
    openid_transport: httpx2.BaseTransport | None = None
    """Transport of requests to that provider (default: the network)."""
    catalog: Path | None = None
    """Folder of refreshed prices (None: only the shipped prices)."""
    price_keys: Mapping[str, Secret] = field(default_factory=dict)
    """Keys of the price interfaces that require one, by provider."""


class Services:
    def __init__(self, ports: Ports, backends: Mapping[str, Backend], deployment: Deployment) -> None:
        self.live = live = LiveBackends.wrap(backends)
        self.ports = ports = replace(ports, calls=RedactingCalls(ports.calls, live.secrets))
        self.deployment = deployment
        self.access = Access(ports.db, ports.clock)
        self.login = Login(ports, _openid_login(ports, deployment))
        self.people = People(ports, self.access, self.login)
        self.tokens = Tokens(ports, self.access)
        self.feed = Feed(ports.wakeups)
        self.tails = OutputTails()
        self.contacts = Contacts()
        self.writer = Writer(ports, self.feed)
        mailboxes = Mailboxes(ports, store_folder(deployment.store_url))
        invitations = Invitations(mailboxes, deployment.agents_url, deployment.store_url, deployment.channel)
        self.invitations = invitations
        self.backends = ConnectedBackends(live, invitations)
        self.offers = OfferBook(self.backends, ports.calls, ports.clock, ports.wakeups)
        self.admission = Admission(self.backends, self.offers)
        self.duties = Duties(ports.worker, live)
        factory = MachineFactory(ports.ids, deployment.id, deployment.terms, self.backends)
        self.scheduler = Scheduler(ports, self.writer, self.backends, self.offers, self.duties, factory)
        self.vault = Vault(ports, self.access, deployment.secrets_keys or deployment.scratch / KEYS_FILE)
        self.backend_access = BackendAccess(
            self.backends, self.admission, shared_computer=deployment.shared_computer, own_node=deployment.own_node
        )
        self.submitter = Submitter(
            self.backend_access,
            self.admission,
            self.scheduler,
            ports.ids,
            self.vault,
            queue_limit=deployment.queue_limit,
            most_nodes=deployment.most_nodes,
        )
        library, sources = Library(deployment.catalog), Sources(deployment.price_keys)
        self.catalog = Catalog(library, self.backends, ports.calls, ports.clock, self.access, sources)
        self.plans = Plans(ports, self.backends, self.offers, factory, deployment.id, self.catalog, self.backend_access)
        self.forecasts = Forecasts(ports, self.backends, self.plans)
        self.bulk = BulkJobs(self.writer, self.submitter)
        self.quota = StoreQuota(ports, deployment.quota)
        self.uploads = Uploads(ports, deployment.scratch, self.quota)
        self.bundles = Bundles(ports, self.uploads, deployment.bundle_limit)
        local_agents_url = deployment.local_agents_url or deployment.agents_url
        self.sessions = Sessions(ports, local_agents_url)
        self.noted_ports: dict[tuple[str, str | None, str, int], float] = {}
        agent_services = AgentServices(
            ports, self.writer, self.feed, self.tails, self.contacts, deployment.key, self.vault, self.sessions
        )
        downloads = AgentDownloads(ports, deployment.agent_file)
        self.agents = Agents(agent_services, Ingest(ports.ids), self.uploads, self.bundles, downloads)
        self.logs = Logs(ports, self.tails)
        self.logsearch = LogSearch(ports, self.tails)
        self.storelink = StoreLink(ports, self.agents, mailboxes, deployment.key, live, invites=self._invites)
        context = LaunchContext(
            deployment.key, deployment.agents_url, local_agents_url, invitations.make_invitation, downloads.publish
        )
        missing_since = MissingSince()
        self.performer = Performer(ports, self.backends, self.writer, context, missing_since, live)
        self.poller = Poller(ports, self.backends, self.writer, missing_since)
        self.janitor = Janitor(ports, self.backends, self.writer, deployment.id)
        self.reconciler = Reconciler(ports, self.writer, self.contacts, self.scheduler, self.offers)
        self.ledger = Ledger(ports, self.backends, self.writer, self.duties)
        self.retention = Retention(
            ports,
            self.writer,
            self.quota,
            self.duties,
            prune_after=deployment.prune_after,
            current_agent=None if deployment.agent_file is None else deployment.agent_file.sha256,
        )
        source = BackupSource(deployment.database, deployment.id, deployment.store_url, deployment.version)
        self.backup = Backup(ports, source)
        self.connection_store = ConnectionStore(self.vault)
        self.connections = ConnectionSync(
            ports,
            live,
            self.offers,
            self.connection_store,
            deployment.factory,
            deployment.check,
            shared=deployment.shared,
        )
        self.disconnector = Disconnector(ports, live, self.connection_store, self.writer, deployment.shared)
        self.resumer = Resumer(ports, self.writer, self.admission, self.scheduler, self.submitter, self.vault)
        self.sender = Sender(ports, self.vault, deployment.post)
        self.hooks = Hooks(ports, self.access, self.sender)
        self.notifier = Notifier(ports, self.duties, self.sender)

    def _invites(self) -> bool:
        """Return whether agents of some backend talk through the store."""
        return any(self.invitations.channel(each).channel is Channel.STORE for each in self.live.values())

    def nearby(self) -> frozenset[str]:
        """Return the backends whose machines are on this computer."""
        return frozenset(name for name, each in self.live.items() if each.capabilities.reach.is_here)


def _openid_login(ports: Ports, deployment: Deployment) -> OpenIdLogin | None:
    """Return the sign-in with the OpenID provider, or None. Its modules are imported only if there is one."""
    if deployment.openid is None:
        return None
    from crucible.control.people.openid import BoundedTransport, OpenIdLogin

    return OpenIdLogin(ports, deployment.openid, deployment.openid_transport or BoundedTransport())
