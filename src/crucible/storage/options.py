"""Options for access to a bucket, beyond its address."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.core.secret import Secret


@dataclass(frozen=True)
class StoreOptions:
    """Options that are None come from the provider's own environment variables or instance credentials.

    `endpoint`: a server other than the provider's own. `region`: for S3.
    `access_key`, `secret_key`: of S3; on Azure, the account name and account key; on Google Cloud, no access key, and
    the JSON text of a service account's key as the secret one.
    `session_token`: for temporary S3 keys. `anonymous`: do not sign requests, for public buckets.
    `allow_http`: allow http:// for an endpoint from an environment variable; for `endpoint` it is implied.

    `request_seconds`: timeout of one request, from connecting to the last byte. `connect_seconds`: of connecting.
    `retries`: attempts after the first, all of which begin within `request_seconds`; so no call takes longer than twice
    `request_seconds`. Large content takes several calls.
    """

    endpoint: str | None = None
    region: str | None = None
    access_key: Secret | None = None
    secret_key: Secret | None = None
    session_token: Secret | None = None
    anonymous: bool = False
    allow_http: bool = False
    request_seconds: float = 60.0
    connect_seconds: float = 10.0
    retries: int = 4

    @property
    def plain_http(self) -> bool:
        return self.allow_http or (self.endpoint or "").startswith("http://")
