"""What a provider says of itself (OpenID Connect Discovery): where to send people, and where to ask."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from crucible.control.people.openid.web import Web, trouble
from crucible.core.openid import Client

WELL_KNOWN = "/.well-known/openid-configuration"
MAX_URL = 2000


def _named(url: str) -> str:
    parts = urlsplit(url)
    if not parts.hostname or parts.port == 0:
        raise ValueError("no address of a server")
    return url


_Url = Annotated[str, Field(pattern=r"^https?://[\x21-\x7e]+$", max_length=MAX_URL), AfterValidator(_named)]


class Metadata(BaseModel):
    """The part of the document that is used here."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    issuer: str
    authorization_endpoint: _Url
    token_endpoint: _Url
    jwks_uri: _Url
    userinfo_endpoint: _Url | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False

    @property
    def endpoints(self) -> tuple[str, ...]:
        found = (self.authorization_endpoint, self.token_endpoint, self.jwks_uri, self.userinfo_endpoint)
        return tuple(url for url in found if url is not None)


def discovered(client: Client, web: Web) -> Metadata:
    """Raises ProviderTrouble for a document that is none, or another provider's."""
    url = client.issuer.rstrip("/") + WELL_KNOWN
    reply = web.ask(url)
    if reply.status != 200:
        raise trouble(url, f"It answers {reply.status} to {WELL_KNOWN}.")
    try:
        found = Metadata.model_validate(reply.body)
    except ValidationError as error:
        missing = ", ".join(sorted({".".join(map(str, part["loc"])) for part in error.errors()}))
        raise trouble(url, f"Its description lacks or garbles: {missing}.") from error
    if found.issuer.rstrip("/") != client.issuer.rstrip("/"):
        raise trouble(url, f"It calls itself {found.issuer[:200]!r}, and the setting oidc_issuer {client.issuer!r}.")
    open_ones = [endpoint for endpoint in found.endpoints if not endpoint.startswith("https://")]
    if open_ones and not client.here:
        raise trouble(url, f"{open_ones[0][:200]} is not encrypted.")
    return found
