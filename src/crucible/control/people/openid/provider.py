"""One provider: the way there, and whom it vouches for when somebody comes back. Blocks; has a lane of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from crucible.control.people.openid import idtoken
from crucible.control.people.openid.keyring import KEEP_SECONDS, Keyring
from crucible.control.people.openid.metadata import Metadata, discovered
from crucible.control.people.openid.web import ProviderTrouble, Reply, Web, trouble
from crucible.core.openid import Client, Person, challenge_of, person_of

AGAIN_SECONDS = 5.0
"""How long a provider that is down is left alone."""
SCOPES = "openid email profile"


@dataclass(frozen=True)
class Trip:
    """One sign-in: what was sent along, and has to come back or is needed for the exchange."""

    state: str
    nonce: str
    verifier: str
    redirect_uri: str


class Provider:
    def __init__(self, client: Client, web: Web, steady: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._web = web
        self._steady = steady
        self._keys = Keyring(web, steady)
        self._lock = threading.Lock()
        self._known: tuple[Metadata, float] | None = None
        self._failed: tuple[ProviderTrouble, float] | None = None

    def way(self, trip: Trip) -> str:
        """Where to send the browser. Raises ProviderTrouble."""
        from authlib.oauth2.rfc6749.parameters import prepare_grant_uri

        return str(
            prepare_grant_uri(
                self._metadata().authorization_endpoint,
                client_id=self._client.id,
                response_type="code",
                redirect_uri=trip.redirect_uri,
                scope=SCOPES,
                state=trip.state,
                nonce=trip.nonce,
                code_challenge=challenge_of(trip.verifier),
                code_challenge_method="S256",
            )
        )

    def vouched(self, trip: Trip, code: str, named: str | None, now: float) -> Person:
        """Who came back with `code`. `named`: the issuer that the browser names. The provider's tokens are not kept.

        Raises NotVouched, ProviderTrouble.
        """
        about = self._metadata()
        _same_issuer(about, named)
        given = self._exchange(about, trip, code)
        token, access = given.get("id_token"), given.get("access_token")
        if not isinstance(token, str):
            raise idtoken.not_vouched("It sent none.")
        access = access if isinstance(access, str) and access else None
        terms = idtoken.Terms(about.issuer, self._client.id, trip.nonce, now, access)
        claims = idtoken.checked(token, lambda kid: self._keys.find(about.jwks_uri, kid), terms)
        if "email" not in claims and about.userinfo_endpoint and access:
            claims = {**claims, **self._more(about.userinfo_endpoint, access, claims["sub"])}
        return person_of(claims)

    def _metadata(self) -> Metadata:
        """Whoever asks while the provider is down hears so at once: it is not asked again for each of them."""
        with self._lock:
            now = self._steady()
            if self._known is not None and now - self._known[1] <= KEEP_SECONDS:
                return self._known[0]
            if self._failed is not None and now - self._failed[1] < AGAIN_SECONDS:
                raise self._failed[0]
            try:
                found = discovered(self._client, self._web)
            except ProviderTrouble as error:
                self._failed = (error, self._steady())
                raise
            self._known, self._failed = (found, self._steady()), None
            return found

    def _exchange(self, about: Metadata, trip: Trip, code: str) -> Mapping[str, Any]:
        from authlib.oauth2.auth import ClientAuth
        from authlib.oauth2.rfc6749.parameters import prepare_token_request

        body = prepare_token_request(
            "authorization_code", "", trip.redirect_uri, code=code, code_verifier=trip.verifier
        )
        secret = None if self._client.secret is None else self._client.secret.reveal()
        auth = ClientAuth(self._client.id, secret, self._method(about))
        url, headers, form = auth.prepare("POST", about.token_endpoint, {}, body)
        reply = self._web.ask(url, form, headers)
        return _given(url, reply)

    def _method(self, about: Metadata) -> str:
        """How we say who we are: in the header unless the provider takes it in the form only."""
        if self._client.secret is None:
            return "none"
        known = about.token_endpoint_auth_methods_supported
        in_form = "client_secret_basic" not in known and "client_secret_post" in known
        return "client_secret_post" if in_form else "client_secret_basic"

    def _more(self, url: str, access: str, subject: str) -> Mapping[str, Any]:
        """The address, from a provider that does not put it into the token; only if it speaks of the same person."""
        reply = self._web.ask(url, None, {"Authorization": f"Bearer {access}"})
        if reply.status != 200 or not isinstance(reply.body, Mapping):
            raise trouble(url, f"It answers {reply.status} when asked for your address.")
        if reply.body.get("sub") != subject:
            raise idtoken.not_vouched("It speaks of somebody else when asked for your address.")
        return {name: reply.body.get(name) for name in ("email", "email_verified")}


def _same_issuer(about: Metadata, named: str | None) -> None:
    """An answer of another provider is not taken for one of ours (RFC 9207)."""
    if named is None and not about.authorization_response_iss_parameter_supported:
        return
    if named != about.issuer:
        raise idtoken.not_vouched("The answer comes from another provider than the one that was asked.")


def _given(url: str, reply: Reply) -> Mapping[str, Any]:
    """The tokens in the answer. A code that is used, too old or made up is the person's to mend, the rest is not."""
    if not isinstance(reply.body, Mapping):
        raise trouble(url, "It answers no tokens.")
    if reply.status == 200:
        return reply.body
    error = str(reply.body.get("error", ""))[:100]
    if error == "invalid_grant":
        raise idtoken.not_vouched("It does not know the code that you brought, or not any more.")
    raise trouble(url, f"It answers {reply.status} {error!r} to this server; oidc_client_secret may be wrong.")
