"""How a bucket is reached: what its address does not say."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.core.secret import Secret


@dataclass(frozen=True)
class StoreOptions:
    """Whatever is None comes from the provider's own environment variables or instance credentials.

    `endpoint`: a server other than the provider's own. `region`: for S3.
    `access_key`, `secret_key`: the two halves of an S3 key; account name and account key on Azure; on Google
    Cloud no access key, and the JSON text of a service account's key as the secret one.
    `session_token`: for temporary S3 keys. `anonymous`: requests are not signed, for public buckets.
    `allow_http`: also for endpoints that an environment variable names; one given here says it by its `http://`.

    `request_seconds`: one request, from connecting to the last byte. `connect_seconds`: connecting.
    `retries`: more tries after the first, all of them begun within `request_seconds`; so no call to the network
    takes longer than twice `request_seconds`. Large content takes several calls.
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
