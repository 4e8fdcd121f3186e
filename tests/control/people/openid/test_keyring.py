"""The provider's keys: kept, looked for again when one is unknown, and not too often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet
from tests.openid_provider import CLIENT, ISSUER, OpenIdProvider, key_of, transport

from crucible.control.people.openid.idtoken import (
    KEEP_SECONDS,
    REFETCH_SECONDS,
    ExpectedToken,
    NotVouched,
    fetch_signing_keys,
    verify_id_token,
)
from crucible.control.people.openid.transport import Cached, ProviderTrouble

URL = "https://id.example.org/keys"
NOW = 1_800_000_000
CLAIMS = {"iss": ISSUER, "aud": CLIENT, "exp": NOW + 60, "iat": NOW, "nonce": "n", "sub": "4711"}


@dataclass
class Watch:
    time: float = 100.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def provider() -> OpenIdProvider:
    return OpenIdProvider()


@pytest.fixture
def keys(provider: OpenIdProvider, watch: Watch) -> Cached[KeySet]:
    return Cached(lambda: fetch_signing_keys(transport(provider), URL), watch)


def takes(keys: Cached[KeySet], kid: str | None, alg: str = "RS256") -> bool:
    """Whether a token is believed that names this key."""
    header = {"alg": alg} if kid is None else {"alg": alg, "kid": kid}
    token = jwt.encode(header, dict(CLAIMS), key_of(alg), algorithms=[alg])
    try:
        return verify_id_token(token, keys, ExpectedToken(ISSUER, CLIENT, "n", NOW))["sub"] == "4711"
    except NotVouched:
        return False


def test_keys_are_asked_for_once(keys: Cached[KeySet], provider: OpenIdProvider) -> None:
    for _ in range(3):
        assert takes(keys, "rs256")
    assert provider.asked == ["/keys"]


def test_a_new_key_is_looked_for(keys: Cached[KeySet], provider: OpenIdProvider, watch: Watch) -> None:
    assert takes(keys, "rs256")
    provider.listed = ("RS256", "ES256")
    assert not takes(keys, "es256", "ES256"), "not at once again"
    watch.time += REFETCH_SECONDS
    assert takes(keys, "es256", "ES256")
    assert provider.asked == ["/keys"] * 2


def test_made_up_names_do_not_make_us_ask_more_often(
    keys: Cached[KeySet], provider: OpenIdProvider, watch: Watch
) -> None:
    for n in range(100):
        watch.time += 1
        assert not takes(keys, f"made-up-{n}")
    assert len(provider.asked) <= 1 + 100 / REFETCH_SECONDS


def test_keys_that_were_withdrawn_are_forgotten(keys: Cached[KeySet], provider: OpenIdProvider, watch: Watch) -> None:
    assert takes(keys, "rs256")
    provider.listed = ("ES256",)
    watch.time += KEEP_SECONDS + 1
    assert not takes(keys, "rs256")


def test_keys_that_cannot_be_fetched_again_leave_the_others(
    keys: Cached[KeySet], provider: OpenIdProvider, watch: Watch
) -> None:
    assert takes(keys, "rs256")
    provider.answers["/keys"] = (500, {})
    watch.time += REFETCH_SECONDS
    with pytest.raises(ProviderTrouble):
        takes(keys, "new")
    assert takes(keys, "rs256")


def test_without_a_name_the_only_key_is_meant(keys: Cached[KeySet], provider: OpenIdProvider, watch: Watch) -> None:
    assert takes(keys, None)
    provider.listed = ("RS256", "ES256")
    watch.time += KEEP_SECONDS + 1
    assert not takes(keys, None)


@pytest.mark.parametrize(
    "listed",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "k"},
        {"kty": "RSA", "kid": "k"},
        {"kty": "RSA", "n": "!", "e": "AQAB", "kid": "k"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "k"},
        {"kty": "EC", "crv": "none", "x": "AA", "y": "AA", "kid": "k"},
        {**key_of("RS256").as_dict(private=False), "use": "enc", "kid": "k"},
        {"kid": "k"},
        "k",
        None,
    ],
)
def test_what_is_no_signing_key_is_passed_by(keys: Cached[KeySet], provider: OpenIdProvider, listed: Any) -> None:
    provider.answers["/keys"] = (200, {"keys": [listed, key_of("ES256").as_dict(private=False)]})
    assert not takes(keys, "k")
    assert takes(keys, "es256", "ES256")


@pytest.mark.parametrize("answer", [(200, {}), (200, {"keys": {}}), (200, []), (200, None), (503, {"keys": []})])
def test_answers_that_list_no_keys(keys: Cached[KeySet], provider: OpenIdProvider, answer: tuple[int, Any]) -> None:
    provider.answers["/keys"] = answer
    with pytest.raises(ProviderTrouble):
        takes(keys, "rs256")
