"""The ID token: whether the provider signed it, for us, for this very sign-in, and not long ago."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crucible.core.errors import BadInput, NotAllowed
from crucible.core.openid import checked_subject

if TYPE_CHECKING:
    from joserfc.jwk import Key

ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA", "Ed25519")
"""With a public and a private half. `none` signs nothing; the HS ones sign with what both sides know."""
LEEWAY = 60
"""Seconds by which the provider's clock may differ from ours."""
MAX_TOKEN = 16 * 1024


class NotVouched(NotAllowed):
    """What came from the provider does not show who signs in."""

    code = "not_vouched"


@dataclass(frozen=True)
class Terms:
    """What the token has to say."""

    issuer: str
    client: str
    nonce: str
    now: float
    access_token: str | None = None


def checked(token: str, find: Callable[[str | None], Key | None], terms: Terms) -> Mapping[str, Any]:
    """The claims of a good token; raises NotVouched. `find` knows the provider's keys."""
    from authlib.oidc.core import CodeIDToken
    from joserfc.errors import JoseError

    try:
        header, claims = _signed(token, find)
        wanted = {
            "iss": {"essential": True, "value": terms.issuer},
            "aud": {"essential": True, "value": terms.client},
            "sub": {"essential": True},
        }
        params = {"client_id": terms.client, "nonce": terms.nonce, "access_token": terms.access_token}
        CodeIDToken(claims, header, wanted, params).validate(now=int(terms.now), leeway=LEEWAY)
    except (JoseError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise not_vouched(_reason(error)) from error
    try:
        checked_subject(claims["sub"])
    except BadInput as error:
        raise not_vouched("Its name for you is none.") from error
    return claims


def _signed(token: str, find: Callable[[str | None], Key | None]) -> tuple[dict[str, Any], dict[str, Any]]:
    from joserfc import jws, jwt
    from joserfc.errors import InvalidKeyIdError, UnsupportedAlgorithmError

    if len(token) > MAX_TOKEN:
        raise ValueError("the token is too long")
    header = jws.extract_compact(token.encode("ascii")).headers()
    if header.get("alg") not in ALGORITHMS:
        raise UnsupportedAlgorithmError(f"it is signed with {str(header.get('alg'))[:20]!r}")
    kid = header.get("kid")
    key = find(kid if isinstance(kid, str) else None)
    if key is None:
        raise InvalidKeyIdError("none of the provider's keys")
    found = jwt.decode(token, key, algorithms=list(ALGORITHMS))
    return found.header, found.claims


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
