"""Keys, transport and SDK clients to read prices with. Light, because a starting server imports this module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crucible.core.secret import Secret

if TYPE_CHECKING:
    import httpx2

KEYS = {"gcp": "GOOGLE_API_KEY", "lambda": "LAMBDA_API_KEY"}
"""The environment variable of the server with the key of a price interface, for providers that require one."""

Clients = Callable[[str, str], Any]
"""Returns an AWS SDK client for a service in a region."""


def boto_clients() -> Clients | None:
    """Return AWS SDK clients with its default credentials, or None without the SDK or without credentials."""
    try:
        import boto3  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    session = boto3.Session()
    if session.get_credentials() is None:
        return None
    return lambda service, region: session.client(service, region_name=region)


@dataclass(frozen=True)
class Sources:
    """`keys`: by provider. `transport`: of HTTP requests (default: the network)."""

    keys: Mapping[str, Secret] = field(default_factory=dict)
    transport: httpx2.BaseTransport | None = None
    aws_clients: Callable[[], Clients | None] = boto_clients
