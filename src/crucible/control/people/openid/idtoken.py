"""The ID token: whether the provider signed it, for us, for this very sign-in, and not long ago."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2

from crucible.control.people.openid.transport import Cached, get, trouble
from crucible.core.errors import BadInput, NotAllowed
from crucible.core.people.openid import validate_subject

if TYPE_CHECKING:
    from joserfc.jwk import Key, KeySet
    from joserfc.jwt import Token

ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA", "Ed25519")
"""With a public and a private half. `none` signs nothing; the HS ones sign with what both sides know."""
LEEWAY = 60
"""Seconds by which the provider's clock may differ from ours."""
MAX_TOKEN = 16 * 1024
MAX_KEYS = 100
KEEP_SECONDS = 3600.0
AGAIN_SECONDS = 30.0
"""For an unknown key the provider is asked no more often than this, whatever key names tokens have."""
SIGNING = frozenset({"RSA", "EC", "OKP"})
"""Kinds of keys with a public half. A shared secret in the provider's list would be one that everybody knows."""


class NotVouched(NotAllowed):
    """What came from the provider does not show who signs in."""

    code = "not_vouched"


@dataclass(frozen=True)
class Terms:
    """What the token has to say. `algorithms`: what the provider says that it signs with (None: it does not say)."""

    issuer: str
    client: str
    nonce: str
    now: float
    access_token: str | None = None
    algorithms: tuple[str, ...] | None = None


def signing_keys(transport: httpx2.BaseTransport, url: str) -> KeySet:
    """The keys that the provider lists; raises ProviderTrouble."""
    from joserfc.jwk import KeySet

    listed = get(transport, url).get("keys")
    if not isinstance(listed, list):
        raise trouble(url, "It does not list its keys.")
    return KeySet([key for given in listed[:MAX_KEYS] if (key := _imported(given)) is not None])


def _imported(given: Any) -> Key | None:
    """None for what cannot be used here: providers list keys for other purposes, and of kinds still to come."""
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    if not isinstance(given, dict) or given.get("kty") not in SIGNING or given.get("use", "sig") != "sig":
        return None
    try:
        return import_key(given)
    except (JoseError, ValueError, TypeError, KeyError):
        return None


def checked(token: str, keys: Cached[KeySet], terms: Terms) -> Mapping[str, Any]:
    """The claims of a good token; raises NotVouched, ProviderTrouble."""
    from authlib.oidc.core import CodeIDToken
    from joserfc.errors import JoseError

    try:
        found = _decoded(token, keys, terms)
        wanted = {
            "iss": {"essential": True, "value": terms.issuer},
            "aud": {"essential": True, "value": terms.client},
            "sub": {"essential": True},
        }
        params = {"client_id": terms.client, "nonce": terms.nonce, "access_token": terms.access_token}
        CodeIDToken(found.claims, found.header, wanted, params).validate(now=int(terms.now), leeway=LEEWAY)
    except (JoseError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise not_vouched(_reason(error)) from error
    try:
        validate_subject(found.claims["sub"])
    except BadInput as error:
        raise not_vouched("Its name for you is none.") from error
    return found.claims


def _decoded(token: str, keys: Cached[KeySet], terms: Terms) -> Token:
    """A key that is not known is looked for once more: the provider may have a new one."""
    from joserfc import jwt
    from joserfc.errors import InvalidKeyIdError, UnsupportedAlgorithmError

    if len(token) > MAX_TOKEN:
        raise ValueError("the token is too long")
    allowed = [name for name in ALGORITHMS if terms.algorithms is None or name in terms.algorithms]
    if not allowed:
        # For joserfc an empty list is no list: it would take its own, which has HS256.
        raise UnsupportedAlgorithmError("the provider signs with nothing that is taken here")
    try:
        return jwt.decode(token, keys.get(KEEP_SECONDS), allowed)
    except InvalidKeyIdError:
        return jwt.decode(token, keys.get(AGAIN_SECONDS), allowed)


def _reason(error: Exception) -> str:
    from joserfc.errors import BadSignatureError, ClaimError, ExpiredTokenError

    if isinstance(error, ExpiredTokenError):
        return "It has expired; the clocks of this server and of the provider may differ."
    if isinstance(error, BadSignatureError):
        return "Its signature is not the provider's."
    if isinstance(error, ClaimError):
        return f"Its claim {error.claim!r} is not what was asked for."
    return f"It is not signed as it has to be ({type(error).__name__})."


def not_vouched(why: str) -> NotVouched:
    return NotVouched(
        "The provider's token does not show who you are.",
        why=why,
        fix="Sign in again; if it stays, an administrator compares the settings oidc_issuer and oidc_client_id with "
        "those of the provider.",
    )
