"""Every setting: its meaning, its parser and its default."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from crucible.core.channels import Channel
from crucible.core.secret import Secret
from crucible.settings import parsers
from crucible.settings.parsers import DatabaseUrl
from crucible.settings.setting import Setting, SettingRule, server_setting, setting
from crucible.wire.files.bundle import DEFAULT_LIMIT

DEFAULT_RESERVE = 1024**3
DEFAULT_QUEUED = 500


def default_home() -> Path:
    from platformdirs import user_state_path

    return user_state_path("crucible", appauthor=False)


@dataclass(frozen=True)
class Settings:
    """The settings in effect, in the order `crucible config` lists them."""

    home: Setting[Path] = SettingRule(parsers.path, default_home).declare()
    """The state folder."""
    server: Setting[str | None] = setting(parsers.url, None)
    """Address of the server to use (None: the embedded one)."""
    token: Setting[Secret | None] = setting(parsers.secret, None, hidden=True)
    """Token for that server."""
    project: Setting[str | None] = setting(parsers.text, None)
    """Default project of jobs (None: the user's only project, or `default`)."""
    places: Setting[tuple[str, ...] | None] = setting(parsers.names, None)
    """Default backends of the Python client's jobs, in order of preference (None: all)."""
    bundle_limit: Setting[int] = setting(parsers.size, DEFAULT_LIMIT)
    """Maximum size of a job's code, in bytes."""
    ask_above: Setting[float] = setting(parsers.dollars, 5.0)
    """`run` asks before a job that may cost more than this, in dollars."""
    request_seconds: Setting[float] = setting(parsers.seconds, 30.0)
    """Timeout of one request, in seconds."""
    start_seconds: Setting[float] = setting(parsers.seconds, 15.0)
    """Timeout for the embedded server's start, in seconds."""

    database: Setting[DatabaseUrl | None] = server_setting(parsers.database, None, hidden=True)
    """URL of a PostgreSQL database (None: a SQLite file in `home`)."""
    key_file: Setting[Path | None] = server_setting(parsers.path, None)
    """File with the deployment's key, for servers that share a database (None: the one in `home`)."""
    backends: Setting[tuple[str, ...]] = server_setting(parsers.names, ("local",))
    """The backends the server is connected to."""
    local_folder: Setting[Path | None] = server_setting(parsers.path, None)
    """Folder for the files of machines on this computer (None: `home`)."""
    models_python: Setting[str | None] = server_setting(parsers.interpreter, None)
    """The Python whose model plugins the server offers (None: no models)."""

    agents_url: Setting[str | None] = server_setting(parsers.url, None)
    """Address at which agents reach the server through a proxy (None: where it listens itself)."""
    channel: Setting[Channel] = server_setting(parsers.channel, Channel.HTTPS)
    """Preferred channel between agents and the server, `https` or `store`."""
    rehearsal_state: Setting[Path | None] = server_setting(parsers.path, None)
    """Folder of a simulated cloud shared by several deployments (None: one of its own)."""
    machine_seconds: Setting[float] = server_setting(parsers.machine_life, 24 * 3600.0)
    """Maximum life of a rented machine whose job has no time limit; the job continues on another."""
    lease_seconds: Setting[float] = server_setting(parsers.machine_life, 6 * 3600.0)
    """How long an agent on a rented machine runs without contact to the server."""

    store: Setting[str | None] = server_setting(parsers.path_or_url, None, hidden=True)
    """Path or URL of the store for bundles, logs and outputs (None: a folder in `home`)."""
    store_endpoint: Setting[str | None] = server_setting(parsers.url, None)
    """Like the three below, access to a bucket (None: the provider's own environment variables)."""
    store_region: Setting[str | None] = server_setting(parsers.text, None)
    store_access_key: Setting[Secret | None] = server_setting(parsers.secret, None, hidden=True)
    store_secret_key: Setting[Secret | None] = server_setting(parsers.secret, None, hidden=True)
    disk_reserve: Setting[int] = server_setting(parsers.size_or_zero, DEFAULT_RESERVE)
    """Bytes to keep free on the store's disk."""
    store_quota: Setting[int | None] = server_setting(parsers.size, None)
    """Maximum size of the store, in bytes (None: no limit)."""
    prune_after: Setting[float | None] = server_setting(parsers.days, None)
    """Age, in seconds since a job's end, at which its files are removed automatically (None: never)."""

    queued_limit: Setting[int] = server_setting(parsers.count, DEFAULT_QUEUED)
    """Maximum number of queued jobs of one user; the owner has no limit."""
    shared_computer: Setting[bool] = server_setting(parsers.flag, False)
    """Whether the users trust each other, so that their jobs may share this computer."""
    tls_certificate: Setting[Path | None] = server_setting(parsers.path, None)
    """With `tls_key`, PEM files for the server's own TLS (None: no TLS)."""
    tls_key: Setting[Path | None] = server_setting(parsers.path, None)
    public_url: Setting[str | None] = server_setting(parsers.url, None)
    """The server's address as seen from other computers."""
    webhook_hosts: Setting[tuple[str, ...]] = server_setting(parsers.names, ())
    """Private hosts and networks that webhooks may call; public ones are always allowed."""
    behind_proxy: Setting[bool] = server_setting(parsers.flag, False)
    """Whether a proxy in front of the server terminates TLS."""
    proxies: Setting[tuple[str, ...]] = server_setting(parsers.networks, ())
    """Addresses and networks the proxy connects from, if not this computer."""

    oidc_issuer: Setting[str | None] = server_setting(parsers.url, None)
    """The OpenID provider users sign in with (None: no OpenID)."""
    oidc_client_id: Setting[str | None] = server_setting(parsers.text, None)
    """Client ID of the server at the provider; its secret is below."""
    oidc_client_secret: Setting[Secret | None] = server_setting(parsers.secret, None, hidden=True)
    oidc_name: Setting[str] = server_setting(parsers.text, "OpenID")
    """Display name of the provider."""
    oidc_domains: Setting[tuple[str, ...] | None] = server_setting(parsers.domains, None)
    """Allowed domains of e-mail addresses (None: any)."""
    oidc_create_users: Setting[str | None] = server_setting(parsers.project, None)
    """Project that new users join at their first sign-in (None: unknown users are rejected)."""


RULES = {declared.name: SettingRule.from_field(declared) for declared in fields(Settings)}
NAMES = tuple(RULES)
SERVER_NAMES = tuple(name for name, rule in RULES.items() if rule.server)
"""Settings only a server reads."""
HIDDEN = frozenset(name for name, rule in RULES.items() if rule.hidden)
"""Settings whose wrong values are not repeated in errors."""
