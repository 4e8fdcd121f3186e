"""Every setting there is: what it is, how it is read, and what it is unless somebody says it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from crucible.core.channels import Channel
from crucible.core.secret import Secret
from crucible.settings import readers
from crucible.settings.database import DatabaseUrl
from crucible.settings.setting import Rule, Setting, known, of_server
from crucible.wire.files.bundle import DEFAULT_LIMIT

DEFAULT_RESERVE = 1024**3


def default_home() -> Path:
    from platformdirs import user_state_path

    return user_state_path("crucible", appauthor=False)


@dataclass(frozen=True)
class Settings:
    """The settings in force, in the order in which `crucible config` lists them."""

    home: Setting[Path] = Rule(readers.path, default_home).declare()
    """The state folder."""
    server: Setting[str | None] = known(readers.url, None)
    """A server named by the user (None: the embedded one)."""
    token: Setting[Secret | None] = known(readers.secret, None, hidden=True)
    """For that server."""
    project: Setting[str | None] = known(readers.text, None)
    """Where jobs go unless they say (None: the user's only project, or the default one)."""
    places: Setting[tuple[str, ...] | None] = known(readers.names, None)
    """The backends that jobs of the Python client go along, in this order, when they name none (None: all)."""
    bundle_limit: Setting[int] = known(readers.size, DEFAULT_LIMIT)
    """Bytes of code one job may carry."""
    ask_above: Setting[float] = known(readers.dollars, 5.0)
    """Dollars; `run` asks before a job that may cost more."""
    request_seconds: Setting[float] = known(readers.seconds, 30.0)
    """Deadline of one request."""
    start_seconds: Setting[float] = known(readers.seconds, 15.0)
    """How long the embedded server may take to be ready."""

    database: Setting[DatabaseUrl | None] = of_server(readers.database, None, hidden=True)
    """A PostgreSQL server (None: a file in `home`)."""
    key_file: Setting[Path | None] = of_server(readers.path, None)
    """The deployment's key, for servers that share a database (None: the one in `home`)."""
    backends: Setting[tuple[str, ...]] = of_server(readers.names, ("local",))
    """The places a server is connected to."""
    local_folder: Setting[Path | None] = of_server(readers.path, None)
    """Where machines on this computer keep their files (None: `home`)."""
    models_python: Setting[str | None] = of_server(readers.interpreter, None)
    """The Python whose model plugins a server offers (None: it offers none)."""

    agents_url: Setting[str | None] = of_server(readers.url, None)
    """By which agents reach the server through a proxy before it (None: where it listens itself)."""
    channel: Setting[Channel] = of_server(readers.channel, Channel.HTTPS)
    """How agents talk with the server where both would do, `https` or `store`."""
    rehearsal_state: Setting[Path | None] = of_server(readers.path, None)
    """The folder of a simulated cloud that several deployments use (None: one of its own)."""
    machine_seconds: Setting[float] = of_server(readers.life, 24 * 3600.0)
    """The life of a rented machine whose job has no time limit; the job goes on on another."""
    lease_seconds: Setting[float] = of_server(readers.life, 6 * 3600.0)
    """How long an agent on a rented machine goes on without contact."""

    store: Setting[str | None] = of_server(readers.place, None, hidden=True)
    """Where bundles, logs and outputs are kept, a path or a URL (None: a folder in `home`)."""
    store_endpoint: Setting[str | None] = of_server(readers.url, None)
    """With the three below, how a bucket is reached (None: as the provider's own environment variables say)."""
    store_region: Setting[str | None] = of_server(readers.text, None)
    store_access_key: Setting[Secret | None] = of_server(readers.secret, None, hidden=True)
    store_secret_key: Setting[Secret | None] = of_server(readers.secret, None, hidden=True)
    disk_reserve: Setting[int] = of_server(readers.size_or_none, DEFAULT_RESERVE)
    """Bytes of the store's disk that stay free."""
    store_quota: Setting[int | None] = of_server(readers.size, None)
    """Bytes the store may hold (None: no limit)."""
    prune_after: Setting[float | None] = of_server(readers.days, None)
    """Seconds after which what an ended job stored is removed by itself (None: never)."""

    shared_computer: Setting[bool] = of_server(readers.flag, False)
    """The server's users trust each other, so their jobs may run beside each other on this computer."""
    tls_certificate: Setting[Path | None] = of_server(readers.path, None)
    """With `tls_key`, PEM files with which the server encrypts by itself (None: it does not)."""
    tls_key: Setting[Path | None] = of_server(readers.path, None)
    public_url: Setting[str | None] = of_server(readers.url, None)
    """How others than this computer call the server."""
    webhook_hosts: Setting[tuple[str, ...]] = of_server(readers.names, ())
    """Hosts and networks of one's own that notifications may be sent to; the open internet always."""
    behind_proxy: Setting[bool] = of_server(readers.flag, False)
    """A proxy before the server encrypts."""
    proxies: Setting[tuple[str, ...]] = of_server(readers.networks, ())
    """Addresses and networks that it connects from, if not from this computer."""

    oidc_issuer: Setting[str | None] = of_server(readers.url, None)
    """The OpenID provider that people sign in with (None: there is none)."""
    oidc_client_id: Setting[str | None] = of_server(readers.text, None)
    """With the secret, who the server is there."""
    oidc_client_secret: Setting[Secret | None] = of_server(readers.secret, None, hidden=True)
    oidc_name: Setting[str] = of_server(readers.text, "OpenID")
    """What people call it."""
    oidc_domains: Setting[tuple[str, ...] | None] = of_server(readers.domains, None)
    """Those of the e-mail addresses that may come in (None: any)."""
    oidc_create_users: Setting[str | None] = of_server(readers.project, None)
    """The project of which people that no administrator made become members (None: they do not come in)."""


RULES = {declared.name: Rule.of(declared) for declared in fields(Settings)}
NAMES = tuple(RULES)
SERVER_NAMES = tuple(name for name, rule in RULES.items() if rule.server)
"""What only a server reads."""
HIDDEN = frozenset(name for name, rule in RULES.items() if rule.hidden)
"""Not repeated when they are wrong."""
