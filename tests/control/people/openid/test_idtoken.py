"""Signatures: which are the provider's, and which are nobody's."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import Key, KeySet, OctKey, RSAKey
from tests.openid_provider import CLIENT, ISSUER, key_of, signed

from crucible.control.people.openid.idtoken import ALGORITHMS, MAX_TOKEN, ExpectedToken, NotVouched, verify_id_token
from crucible.control.people.openid.transport import Cached

NOW = 1_800_000_000
CLAIMS: dict[str, Any] = {"iss": ISSUER, "aud": CLIENT, "exp": NOW + 60, "iat": NOW, "nonce": "n", "sub": "4711"}
TERMS = ExpectedToken(ISSUER, CLIENT, "n", NOW)

pytestmark = pytest.mark.filterwarnings("ignore:EdDSA is deprecated")


def listing(*keys: Key) -> Cached[KeySet]:
    """A provider with these keys."""
    return Cached(lambda: KeySet(list(keys)), lambda: 0.0)


def listed(*algorithms: str) -> Cached[KeySet]:
    return listing(*(key_of(alg) for alg in algorithms))


def raw(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@pytest.mark.parametrize("alg", ALGORITHMS)
def test_signatures_with_two_halves_are_taken(alg: str) -> None:
    assert verify_id_token(signed(CLAIMS, alg), listed(alg), TERMS)["sub"] == "4711"


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "", None, 7])
def test_a_token_that_nobody_signed(alg: Any) -> None:
    with pytest.raises(NotVouched):
        verify_id_token(raw({"alg": alg, "kid": "rs256"}, CLAIMS), listed("RS256"), TERMS)


@pytest.mark.parametrize("form", ["pem", "der"])
def test_a_token_signed_with_the_public_key_as_if_it_were_a_secret(form: str) -> None:
    import hashlib
    import hmac

    public = key_of("RS256")
    assert isinstance(public, RSAKey)
    known = public.as_pem(private=False) if form == "pem" else public.as_der(private=False)
    begun = raw({"alg": "HS256", "kid": "rs256"}, CLAIMS).rstrip(".")
    mac = hmac.new(known, begun.encode(), hashlib.sha256).digest()
    with pytest.raises(NotVouched) as caught:
        verify_id_token(f"{begun}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}", listed("RS256"), TERMS)
    assert caught.value.http_status == 401


@pytest.mark.parametrize("alg", ["HS256", "HS512"])
def test_a_shared_secret_signs_nothing_here(alg: str) -> None:
    secret = OctKey.generate_key(512, {"kid": "s"})
    token = jwt.encode({"alg": alg, "kid": "s"}, dict(CLAIMS), secret, algorithms=[alg])
    with pytest.raises(NotVouched):
        verify_id_token(token, listing(secret), TERMS)


@pytest.mark.parametrize("said", [("ES256",), ("none",), ("HS256",), ()])
def test_an_algorithm_that_the_provider_does_not_name(said: tuple[str, ...]) -> None:
    with pytest.raises(NotVouched):
        verify_id_token(signed(CLAIMS, "RS256"), listed("RS256"), replace(TERMS, algorithms=said))


@pytest.mark.parametrize("said", [("HS256",), ("none", "HS256", "HS512"), ()])
def test_a_provider_that_names_only_algorithms_that_are_not_allowed(said: tuple[str, ...]) -> None:
    """Joserfc takes an empty list of algorithms for its own, in which HS256 is."""
    secret = OctKey.generate_key(512, {"kid": "s"})
    token = jwt.encode({"alg": "HS256", "kid": "s"}, dict(CLAIMS), secret, algorithms=["HS256"])
    with pytest.raises(NotVouched):
        verify_id_token(token, listing(secret), replace(TERMS, algorithms=said))


def test_an_algorithm_that_the_provider_names() -> None:
    terms = replace(TERMS, algorithms=("HS256", "ES256"))
    assert verify_id_token(signed(CLAIMS, "ES256"), listed("ES256"), terms)["sub"] == "4711"


def test_somebody_elses_key() -> None:
    other: Key = RSAKey.generate_key(2048, {"kid": "rs256"})
    token = jwt.encode({"alg": "RS256", "kid": "rs256"}, dict(CLAIMS), other, algorithms=["RS256"])
    with pytest.raises(NotVouched) as caught:
        verify_id_token(token, listed("RS256"), TERMS)
    assert "signature" in caught.value.why


def test_a_key_that_the_provider_does_not_list() -> None:
    with pytest.raises(NotVouched):
        verify_id_token(signed(CLAIMS, "ES256"), listed("RS256"), TERMS)


def test_a_key_that_comes_with_the_token_is_not_asked() -> None:
    own = RSAKey.generate_key(2048)
    header = {"alg": "RS256", "kid": "rs256", "jwk": own.as_dict(private=False), "jku": "https://evil.example/keys"}
    with pytest.raises(NotVouched):
        verify_id_token(jwt.encode(header, dict(CLAIMS), own, algorithms=["RS256"]), listed("RS256"), TERMS)


def test_an_algorithm_that_does_not_fit_the_key() -> None:
    header, claims = {"alg": "ES256", "kid": "rs256"}, CLAIMS
    with pytest.raises(NotVouched):
        verify_id_token(raw(header, claims, b"x" * 64), listed("RS256"), TERMS)


def test_claims_that_were_changed_after_signing() -> None:
    head, _, tail = signed(CLAIMS).split(".")
    changed = base64.urlsafe_b64encode(json.dumps({**CLAIMS, "sub": "1"}).encode()).rstrip(b"=").decode()
    with pytest.raises(NotVouched):
        verify_id_token(f"{head}.{changed}.{tail}", listed("RS256"), TERMS)


def test_an_extension_that_must_be_understood() -> None:
    header = {"alg": "RS256", "kid": "rs256", "crit": ["exp"], "exp": NOW}
    with pytest.raises(NotVouched):
        verify_id_token(raw(header, CLAIMS, b"x"), listed("RS256"), TERMS)


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "...",
        "a.b",
        "a.b.c.d.e",
        "e30.e30.e30",
        "é",
        "x" * (MAX_TOKEN + 1),
        "W1tb.W1tb.eA",
        "bnVsbA.bnVsbA.eA",
    ],
)
def test_texts_that_are_no_token(token: str) -> None:
    with pytest.raises(NotVouched):
        verify_id_token(token, listed("RS256"), TERMS)


@pytest.mark.parametrize("claims", [[], "text", None, 7])
def test_signed_things_that_are_no_claims(claims: Any) -> None:
    from joserfc import jws

    token = jws.serialize_compact(
        {"alg": "RS256", "kid": "rs256"}, json.dumps(claims).encode(), key_of("RS256"), algorithms=["RS256"]
    )
    with pytest.raises(NotVouched):
        verify_id_token(token, listed("RS256"), TERMS)


@pytest.mark.parametrize("exp", [NOW - 61, float("nan"), True, 10**400, -1, [], {}])
def test_times_that_are_over_or_none(exp: Any) -> None:
    token = signed({**CLAIMS, "exp": exp})
    if exp == 10**400:
        assert verify_id_token(token, listed("RS256"), TERMS), "a number, however large"
        return
    with pytest.raises(NotVouched):
        verify_id_token(token, listed("RS256"), TERMS)
