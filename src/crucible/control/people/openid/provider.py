"""Requests to the OpenID provider: its metadata, tokens and keys. They block, so run them off the event loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import httpx2
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from crucible.control.people.openid import idtoken
from crucible.control.people.openid.idtoken import KEEP_SECONDS, not_vouched
from crucible.control.people.openid.signins import SignIn
from crucible.control.people.openid.transport import Cached, get, trouble
from crucible.core.people.openid import OpenIdClient, ProviderIdentity, read_claims

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

SCOPES = "openid email profile"
WELL_KNOWN = "/.well-known/openid-configuration"
MAX_URL = 2000


def _validate_url(url: str) -> str:
    parts = urlsplit(url)
    if not parts.hostname or parts.port == 0:
        raise ValueError("not the URL of a server")
    return url


_Url = Annotated[str, Field(pattern=r"^https?://[\x21-\x7e]+$", max_length=MAX_URL), AfterValidator(_validate_url)]


class Metadata(BaseModel):
    """The part of a provider's metadata that is used here (OpenID Connect Discovery).

    Not validated by authlib, which refuses Okta and accepts unencrypted URLs (docs/decisions/0030).
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    issuer: str
    authorization_endpoint: _Url
    token_endpoint: _Url
    jwks_uri: _Url
    userinfo_endpoint: _Url | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    id_token_signing_alg_values_supported: tuple[str, ...] | None = None
    authorization_response_iss_parameter_supported: bool = False

    @property
    def endpoints(self) -> tuple[str, ...]:
        urls = (self.authorization_endpoint, self.token_endpoint, self.jwks_uri, self.userinfo_endpoint)
        return tuple(url for url in urls if url is not None)


class Provider:
    def __init__(
        self, client: OpenIdClient, transport: httpx2.BaseTransport, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._transport = transport
        self._steady = steady
        self._published = Cached(self._fetch_published, steady)

    def authorization_url(self, signin: SignIn) -> str:
        """Return the URL at which the user signs in. Raises ProviderTrouble."""
        metadata, _ = self._published.get(KEEP_SECONDS)
        with self._oauth(metadata) as oauth:
            url, _ = oauth.create_authorization_url(
                metadata.authorization_endpoint,
                state=signin.state,
                nonce=signin.nonce,
                code_verifier=signin.verifier,
                redirect_uri=signin.redirect_uri,
            )
        return str(url)

    def identify(self, signin: SignIn, code: str, issuer: str | None, now: float) -> ProviderIdentity:
        """Exchange the code, and return who signed in. The provider's tokens are not kept.

        `issuer`: as the redirect names it (RFC 9207). Raises NotVouched or ProviderTrouble.
        """
        metadata, keys = self._published.get(KEEP_SECONDS)
        _check_issuer(metadata, issuer)
        response = self._exchange(metadata, signin, code)
        token, access = response.get("id_token"), response.get("access_token")
        if not isinstance(token, str):
            raise not_vouched("It has no ID token.")
        access = access if isinstance(access, str) and access else None
        algorithms = metadata.id_token_signing_alg_values_supported
        expected = idtoken.ExpectedToken(metadata.issuer, self._client.id, signin.nonce, now, access, algorithms)
        claims = idtoken.verify_id_token(token, keys, expected)
        if "email" not in claims and metadata.userinfo_endpoint and access:
            claims = {**claims, **self._userinfo(metadata.userinfo_endpoint, access, claims["sub"])}
        return read_claims(claims)

    def _fetch_published(self) -> tuple[Metadata, Cached[KeySet]]:
        """Return the metadata with a new cache of keys, because new metadata may name another list of keys."""
        metadata = fetch_metadata(self._client, self._transport)
        return metadata, Cached(lambda: idtoken.fetch_signing_keys(self._transport, metadata.jwks_uri), self._steady)

    def _oauth(self, metadata: Metadata) -> Any:
        """Return authlib's client, which sends the secret in a header, or in the form if the provider requires that."""
        from authlib.integrations.httpx_client import OAuth2Client

        secret, known = self._client.secret, metadata.token_endpoint_auth_methods_supported
        in_form = secret and "client_secret_basic" not in known and "client_secret_post" in known
        return OAuth2Client(
            self._client.id,
            secret.reveal() if secret else None,
            token_endpoint_auth_method="client_secret_post" if in_form else None,
            scope=SCOPES,
            code_challenge_method="S256",
            transport=self._transport,
        )

    def _exchange(self, metadata: Metadata, signin: SignIn, code: str) -> Mapping[str, Any]:
        """Return the token response for a code.

        Raises NotVouched for an invalid code, which a new sign-in repairs, and ProviderTrouble for other failures.
        """
        from authlib.integrations.base_client import OAuthError

        url = metadata.token_endpoint
        try:
            with self._oauth(metadata) as oauth:
                oauth.register_compliance_hook("access_token_response", _require_error_code)
                response: Mapping[str, Any] = oauth.fetch_token(
                    url, code=code, code_verifier=signin.verifier, redirect_uri=signin.redirect_uri
                )
        except OAuthError as error:
            if error.error == "invalid_grant":
                raise not_vouched("The code is unknown or has expired.") from error
            reason = str(error.error)[:100]
            raise trouble(url, f"Its error is {reason!r}; the setting oidc_client_secret may be wrong.") from error
        except (httpx2.HTTPStatusError, ValueError, TypeError, OverflowError) as error:
            raise trouble(url, f"Its response has no tokens ({type(error).__name__}).") from error
        return response

    def _userinfo(self, url: str, access: str, subject: str) -> Mapping[str, Any]:
        """Return the e-mail claims from the userinfo endpoint. Raises NotVouched if they are of another account."""
        body = get(self._transport, url, bearer=access)
        if body.get("sub") != subject:
            raise not_vouched("Its userinfo is of another account.")
        return {name: body.get(name) for name in ("email", "email_verified")}


def fetch_metadata(client: OpenIdClient, transport: httpx2.BaseTransport) -> Metadata:
    """Return the provider's metadata. Raises ProviderTrouble if it is invalid, or another provider's."""
    url = client.issuer.rstrip("/") + WELL_KNOWN
    document = get(transport, url)
    try:
        metadata = Metadata.model_validate(document)
    except ValidationError as error:
        invalid = ", ".join(sorted({".".join(map(str, part["loc"])) for part in error.errors()}))
        raise trouble(url, f"Its metadata has missing or invalid fields: {invalid}.") from error
    if metadata.issuer.rstrip("/") != client.issuer.rstrip("/"):
        raise trouble(url, f"Its issuer is {metadata.issuer[:200]!r}, but oidc_issuer is {client.issuer!r}.")
    unencrypted = [endpoint for endpoint in metadata.endpoints if not endpoint.startswith("https://")]
    if unencrypted and not client.is_local:
        raise trouble(url, f"{unencrypted[0][:200]} is not encrypted.")
    return metadata


def _require_error_code(response: httpx2.Response) -> httpx2.Response:
    """Raise HTTPStatusError for an error response without an error code, which authlib would take for tokens."""
    body = response.json()
    if not isinstance(body, Mapping) or "error" not in body:
        response.raise_for_status()
    return response


def _check_issuer(metadata: Metadata, issuer: str | None) -> None:
    """Raise NotVouched if the redirect came from another provider (RFC 9207)."""
    if issuer is None and not metadata.authorization_response_iss_parameter_supported:
        return
    if issuer != metadata.issuer:
        raise not_vouched("The redirect came from another provider than the one in the settings.")
