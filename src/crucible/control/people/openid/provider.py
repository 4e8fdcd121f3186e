"""One provider: where to send a browser, and whom it vouches for when one comes back. Blocks; has a lane of its own."""

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


def _checked_address(url: str) -> str:
    parts = urlsplit(url)
    if not parts.hostname or parts.port == 0:
        raise ValueError("no address of a server")
    return url


_Url = Annotated[str, Field(pattern=r"^https?://[\x21-\x7e]+$", max_length=MAX_URL), AfterValidator(_checked_address)]


class Metadata(BaseModel):
    """What a provider says of itself (OpenID Connect Discovery): the part that is used here.

    Not authlib's check: it refuses Okta and lets addresses pass that are not encrypted (docs/decisions/0030).
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
        found = (self.authorization_endpoint, self.token_endpoint, self.jwks_uri, self.userinfo_endpoint)
        return tuple(url for url in found if url is not None)


class Provider:
    def __init__(
        self, client: OpenIdClient, transport: httpx2.BaseTransport, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._transport = transport
        self._steady = steady
        self._published = Cached(self._publications, steady)

    def way(self, signin: SignIn) -> str:
        """Where to send the browser. Raises ProviderTrouble."""
        about, _ = self._published.get(KEEP_SECONDS)
        with self._oauth(about) as oauth:
            url, _ = oauth.create_authorization_url(
                about.authorization_endpoint,
                state=signin.state,
                nonce=signin.nonce,
                code_verifier=signin.verifier,
                redirect_uri=signin.redirect_uri,
            )
        return str(url)

    def vouched(self, signin: SignIn, code: str, named: str | None, now: float) -> ProviderIdentity:
        """Who came back with `code`. `named`: the issuer that the browser names. The provider's tokens are not kept.

        Raises NotVouched, ProviderTrouble.
        """
        about, keys = self._published.get(KEEP_SECONDS)
        _same_issuer(about, named)
        given = self._exchange(about, signin, code)
        token, access = given.get("id_token"), given.get("access_token")
        if not isinstance(token, str):
            raise not_vouched("It sent none.")
        access = access if isinstance(access, str) and access else None
        algorithms = about.id_token_signing_alg_values_supported
        terms = idtoken.Terms(about.issuer, self._client.id, signin.nonce, now, access, algorithms)
        claims = idtoken.checked(token, keys, terms)
        if "email" not in claims and about.userinfo_endpoint and access:
            claims = {**claims, **self._userinfo(about.userinfo_endpoint, access, claims["sub"])}
        return read_claims(claims)

    def _publications(self) -> tuple[Metadata, Cached[KeySet]]:
        """A description that is fetched again may name another list of keys, so none are kept across."""
        about = discovered(self._client, self._transport)
        return about, Cached(lambda: idtoken.signing_keys(self._transport, about.jwks_uri), self._steady)

    def _oauth(self, about: Metadata) -> Any:
        """Authlib's client. It says who we are in a header unless the provider takes it in the form only."""
        from authlib.integrations.httpx_client import OAuth2Client

        secret, known = self._client.secret, about.token_endpoint_auth_methods_supported
        in_form = secret and "client_secret_basic" not in known and "client_secret_post" in known
        return OAuth2Client(
            self._client.id,
            secret.reveal() if secret else None,
            token_endpoint_auth_method="client_secret_post" if in_form else None,
            scope=SCOPES,
            code_challenge_method="S256",
            transport=self._transport,
        )

    def _exchange(self, about: Metadata, signin: SignIn, code: str) -> Mapping[str, Any]:
        """The tokens for a code. One that is used, too old or made up is the user's to repair, the rest is not."""
        from authlib.integrations.base_client import OAuthError

        url = about.token_endpoint
        try:
            with self._oauth(about) as oauth:
                oauth.register_compliance_hook("access_token_response", _need_reason)
                given: Mapping[str, Any] = oauth.fetch_token(
                    url, code=code, code_verifier=signin.verifier, redirect_uri=signin.redirect_uri
                )
        except OAuthError as error:
            if error.error == "invalid_grant":
                raise not_vouched("It does not know the code that you brought, or not any more.") from error
            said = str(error.error)[:100]
            raise trouble(url, f"It answers {said!r} to this server; oidc_client_secret may be wrong.") from error
        except (httpx2.HTTPStatusError, ValueError, TypeError, OverflowError) as error:
            raise trouble(url, f"It answers no tokens ({type(error).__name__}).") from error
        return given

    def _userinfo(self, url: str, access: str, subject: str) -> Mapping[str, Any]:
        """The address, from a provider that does not put it into the token; only if it speaks of the same person."""
        body = get(self._transport, url, bearer=access)
        if body.get("sub") != subject:
            raise not_vouched("It speaks of somebody else when asked for your address.")
        return {name: body.get(name) for name in ("email", "email_verified")}


def discovered(client: OpenIdClient, transport: httpx2.BaseTransport) -> Metadata:
    """Raises ProviderTrouble for a document that is none, or another provider's."""
    url = client.issuer.rstrip("/") + WELL_KNOWN
    described = get(transport, url)
    try:
        found = Metadata.model_validate(described)
    except ValidationError as error:
        missing = ", ".join(sorted({".".join(map(str, part["loc"])) for part in error.errors()}))
        raise trouble(url, f"Its description lacks or garbles: {missing}.") from error
    if found.issuer.rstrip("/") != client.issuer.rstrip("/"):
        raise trouble(url, f"It calls itself {found.issuer[:200]!r}, and the setting oidc_issuer {client.issuer!r}.")
    open_ones = [endpoint for endpoint in found.endpoints if not endpoint.startswith("https://")]
    if open_ones and not client.is_local:
        raise trouble(url, f"{open_ones[0][:200]} is not encrypted.")
    return found


def _need_reason(response: httpx2.Response) -> httpx2.Response:
    """Authlib would take an error for tokens if it does not say which one it is."""
    body = response.json()
    if not isinstance(body, Mapping) or "error" not in body:
        response.raise_for_status()
    return response


def _same_issuer(about: Metadata, named: str | None) -> None:
    """An answer of another provider is not taken for one of ours (RFC 9207)."""
    if named is None and not about.authorization_response_iss_parameter_supported:
        return
    if named != about.issuer:
        raise not_vouched("The answer comes from another provider than the one that was asked.")
