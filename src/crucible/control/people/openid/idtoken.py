"""Verify ID tokens: signed by the provider, for this server, for the current sign-in, and not expired."""

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
"""Algorithms with a public and a private key. `none` does not sign, and the HS ones use a shared secret."""
LEEWAY = 60
"""Seconds by which the provider's clock may differ from ours."""
MAX_TOKEN = 16 * 1024
MAX_KEYS = 100
KEEP_SECONDS = 3600.0
"""Time for which the provider's documents are cached."""
REFETCH_SECONDS = 30.0
"""Minimum time between two fetches of the keys because a token names an unknown one."""
SIGNING = frozenset({"RSA", "EC", "OKP"})
"""Types of keys with a public part. A shared secret in the public list of keys would not be secret."""


class NotVouched(NotAllowed):
    """The provider's response does not prove who is signing in."""

    code = "not_vouched"


@dataclass(frozen=True)
class ExpectedToken:
    """What an ID token has to match. `algorithms`: those that the provider declares, or None if it declares none."""

    issuer: str
    client: str
    nonce: str
    now: float
    access_token: str | None = None
    algorithms: tuple[str, ...] | None = None


def fetch_signing_keys(transport: httpx2.BaseTransport, url: str) -> KeySet:
    """Return the usable keys that the provider lists. Raises ProviderTrouble."""
    from joserfc.jwk import KeySet

    documents = get(transport, url).get("keys")
    if not isinstance(documents, list):
        raise trouble(url, "Its response does not list keys.")
    return KeySet([key for document in documents[:MAX_KEYS] if (key := _import_key(document)) is not None])


def _import_key(document: Any) -> Key | None:
    """Return the key, or None if it cannot be used: providers list keys for other purposes, and of unknown types."""
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    if not isinstance(document, dict) or document.get("kty") not in SIGNING or document.get("use", "sig") != "sig":
        return None
    try:
        return import_key(document)
    except (JoseError, ValueError, TypeError, KeyError):
        return None


def verify_id_token(token: str, keys: Cached[KeySet], expected: ExpectedToken) -> Mapping[str, Any]:
    """Return the claims of a valid token. Raises NotVouched or ProviderTrouble."""
    from authlib.oidc.core import CodeIDToken
    from joserfc.errors import JoseError

    try:
        decoded = _decode(token, keys, expected)
        options = {
            "iss": {"essential": True, "value": expected.issuer},
            "aud": {"essential": True, "value": expected.client},
            "sub": {"essential": True},
        }
        params = {"client_id": expected.client, "nonce": expected.nonce, "access_token": expected.access_token}
        CodeIDToken(decoded.claims, decoded.header, options, params).validate(now=int(expected.now), leeway=LEEWAY)
    except (JoseError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise not_vouched(_reason(error)) from error
    try:
        validate_subject(decoded.claims["sub"])
    except BadInput as error:
        raise not_vouched("Its subject for you is not valid.") from error
    return decoded.claims


def _decode(token: str, keys: Cached[KeySet], expected: ExpectedToken) -> Token:
    """Verify the signature. For an unknown key the keys are fetched again, because the provider may have a new one."""
    from joserfc import jwt
    from joserfc.errors import InvalidKeyIdError, UnsupportedAlgorithmError

    if len(token) > MAX_TOKEN:
        raise ValueError("the token is too long")
    allowed = [name for name in ALGORITHMS if expected.algorithms is None or name in expected.algorithms]
    if not allowed:
        # joserfc would replace an empty list by its default, which includes HS256.
        raise UnsupportedAlgorithmError("the provider declares no supported algorithm")
    try:
        return jwt.decode(token, keys.get(KEEP_SECONDS), allowed)
    except InvalidKeyIdError:
        return jwt.decode(token, keys.get(REFETCH_SECONDS), allowed)


def _reason(error: Exception) -> str:
    from joserfc.errors import BadSignatureError, ClaimError, ExpiredTokenError

    if isinstance(error, ExpiredTokenError):
        return "It has expired; the clocks of this server and of the provider may differ."
    if isinstance(error, BadSignatureError):
        return "Its signature is not the provider's."
    if isinstance(error, ClaimError):
        return f"Its claim {error.claim!r} does not have the expected value."
    return f"The token or its signature is not valid ({type(error).__name__})."


def not_vouched(why: str) -> NotVouched:
    return NotVouched(
        "The provider's response does not prove who you are.",
        why=why,
        fix="Sign in again. If this continues, ask an administrator to compare the settings oidc_issuer and "
        "oidc_client_id with those of the provider.",
    )
