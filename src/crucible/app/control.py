"""Build the control plane from the settings."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from crucible.core.errors import BadInput
from crucible.settings import Settings, load_backend_tables

if TYPE_CHECKING:
    from crucible.control.control_plane import ControlPlane
    from crucible.core.people.openid import OpenIdClient
    from crucible.server.state_folder import StateFolder
    from crucible.storage import StoreOptions


def build_control(home: StateFolder, settings: Settings) -> ControlPlane:
    """Build the control plane from the settings. Opens the database and the store; starts nothing."""
    from crucible.control.jobs.queue_limit import QueueLimit
    from crucible.control.machines.machine_factory import LeaseTerms
    from crucible.control.objects.quota import QuotaLimits
    from crucible.control.runtime.compose import ControlOptions, build_control

    _arm_crashpoint()
    openid = _openid(settings)
    database = settings.database.value
    return build_control(
        ControlOptions(
            home=home.path,
            database=home.database if database is None else database.reveal(),
            store=settings.store.value or str(home.store),
            store_options=_store_options(settings),
            agents_url_file=home.agents_url_file,
            agents_address_file=home.agents_address_file,
            agents_socket_file=home.agents_socket_file,
            local_folder=settings.local_folder.value or home.path,
            terms=LeaseTerms(settings.lease_seconds.value, settings.machine_seconds.value),
            quota=QuotaLimits(settings.disk_reserve.value or 0, settings.store_quota.value),
            queue_limit=QueueLimit(settings.queued_limit.value),
            prune_after=settings.prune_after.value,
            backends=settings.backends.value,
            backends_by=settings.backends.origin,
            backend_tables=load_backend_tables(settings),
            channel=settings.channel.value,
            shared_computer=settings.shared_computer.value,
            models_python=settings.models_python.value,
            webhook_hosts=settings.webhook_hosts.value,
            openid=openid,
            key=home.load_key(settings.key_file.value),
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


def _openid(settings: Settings) -> OpenIdClient | None:
    """Return the server's OpenID client, or None. Raises BadInput if only half of it is set."""
    from crucible.core.people.openid import OpenIdClient, validate_client

    issuer, client = settings.oidc_issuer.value, settings.oidc_client_id.value
    if issuer is None and client is None:
        return None
    if issuer is None or client is None:
        raise BadInput(
            "oidc_issuer and oidc_client_id must be set together.", fix="Set both oidc_issuer and oidc_client_id."
        )
    return validate_client(
        OpenIdClient(
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
    """For fault tests: kill this process at the crash point named by CRUCIBLE_CRASHPOINT."""
    name = os.environ.get("CRUCIBLE_CRASHPOINT")
    if name:
        from crucible.control.reconcile.crashpoints import arm

        arm(name, lambda: os.kill(os.getpid(), signal.SIGKILL))
