"""Make the client of each provider from an address and the options.

Credentials of the options are passed as a provider function and not as configuration. So they are not mixed with
environment variables (such as an unrelated session token), and no client shows them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from obstore.store import AzureStore, GCSStore, S3Store

from crucible.core.errors import BadInput
from crucible.storage.addresses import BucketAddress, Provider
from crucible.storage.errors import translate_errors
from crucible.storage.options import StoreOptions

if TYPE_CHECKING:
    from obstore.store import (
        AzureAccessKey,
        AzureConfig,
        AzureCredentialProvider,
        ClientConfig,
        GCSConfig,
        GCSCredential,
        RetryConfig,
        S3Config,
        S3Credential,
        S3CredentialProvider,
    )

Client = S3Store | GCSStore | AzureStore


def connect(address: BucketAddress, options: StoreOptions) -> Client:
    """Make the client without a request. Raises BadInput for options that do not fit together."""
    with translate_errors(str(address)):
        return _CLIENTS[address.provider](address, options)


def _s3(address: BucketAddress, options: StoreOptions) -> S3Store:
    config: S3Config = {
        "disable_bulk_delete": True,  # some servers do not have it, and objects are deleted one by one here
    }
    if options.region:
        config["region"] = options.region
    if options.endpoint:
        config["endpoint"] = config["aws_endpoint_url_s3"] = options.endpoint
    if options.anonymous:
        config["skip_signature"] = True
    return S3Store(
        address.bucket,
        prefix=address.prefix or None,
        config=config,
        client_options=_client(options),
        retry_config=_retry(options),
        credential_provider=_s3_key(options),
    )


def _s3_key(options: StoreOptions) -> S3CredentialProvider | None:
    access, secret, token = options.access_key, options.secret_key, options.session_token
    if options.anonymous or (access is None and secret is None):
        return None
    if access is None or secret is None:
        raise BadInput(
            "Only half of an S3 key is set.",
            why="An access key needs its secret key.",
            fix="Set both store_access_key and store_secret_key, or neither.",
        )

    def reveal() -> S3Credential:
        return {
            "access_key_id": access.reveal(),
            "secret_access_key": secret.reveal(),
            "token": token.reveal() if token else None,
            "expires_at": None,
        }

    return reveal


def _gcs(address: BucketAddress, options: StoreOptions) -> GCSStore:
    config: GCSConfig = {}
    if options.access_key:
        raise BadInput(
            "Google Cloud Storage has no access key.",
            fix="Remove store_access_key. Set store_secret_key to the JSON text of a service account's key.",
        )
    if options.secret_key and not options.anonymous:
        config["service_account_key"] = options.secret_key.reveal()
    if options.endpoint:
        config["base_url"] = options.endpoint
    if options.anonymous:
        config["skip_signature"] = True
    return GCSStore(
        address.bucket,
        prefix=address.prefix or None,
        config=config,
        client_options=_client(options),
        retry_config=_retry(options),
        credential_provider=_no_credentials if options.anonymous else None,
    )


def _no_credentials() -> GCSCredential:
    """Return empty credentials. Without them the client asks the machine's metadata service before anonymous writes."""
    return {"token": "", "expires_at": None}


def _azure(address: BucketAddress, options: StoreOptions) -> AzureStore:
    config: AzureConfig = {}
    if options.access_key:
        config["account_name"] = options.access_key.reveal()
    if options.endpoint:
        config["endpoint"] = options.endpoint
    if options.anonymous:
        config["skip_signature"] = True
    return AzureStore(
        address.bucket,
        prefix=address.prefix or None,
        config=config,
        client_options=_client(options),
        retry_config=_retry(options),
        credential_provider=_azure_key(options),
    )


def _azure_key(options: StoreOptions) -> AzureCredentialProvider | None:
    secret = options.secret_key
    if options.anonymous or secret is None:
        return None
    if options.access_key is None:
        raise BadInput(
            "An Azure account key is set without its account.",
            fix="Set store_access_key to the name of the storage account.",
        )

    def reveal() -> AzureAccessKey:
        return {"access_key": secret.reveal(), "expires_at": None}

    return reveal


_CLIENTS: dict[Provider, Callable[[BucketAddress, StoreOptions], Client]] = {
    Provider.S3: _s3,
    Provider.GCS: _gcs,
    Provider.AZURE: _azure,
}


def _client(options: StoreOptions) -> ClientConfig:
    return {
        "timeout": timedelta(seconds=options.request_seconds),
        "connect_timeout": timedelta(seconds=options.connect_seconds),
        "allow_http": options.plain_http,
    }


def _retry(options: StoreOptions) -> RetryConfig:
    return {
        "max_retries": options.retries,
        "retry_timeout": timedelta(seconds=options.request_seconds),
        "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=5), "base": 2},
    }
