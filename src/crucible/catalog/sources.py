"""Sources: how providers are asked for their prices. Small, so that who only passes them on loads nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crucible.core.secret import Secret

if TYPE_CHECKING:
    import httpx2

KEYS = {"gcp": "GOOGLE_API_KEY", "lambda": "LAMBDA_API_KEY"}
"""The variable in the server's environment that holds the key of a price interface which wants one."""

Clients = Callable[[str, str], Any]
"""A client of the AWS SDK for a service in a region."""


def boto_clients() -> Clients | None:
    """Clients of the AWS SDK, with the credentials it finds; None where it is not installed, or finds none."""
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
    """`keys` by provider. `transport` None: over the network."""

    keys: Mapping[str, Secret] = field(default_factory=dict)
    transport: httpx2.BaseTransport | None = None
    aws_clients: Callable[[], Clients | None] = boto_clients
