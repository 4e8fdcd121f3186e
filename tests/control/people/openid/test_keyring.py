"""The provider's keys: kept, looked for again when one is unknown, and not too often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.openid_provider import OpenIdProvider, ProviderWeb, key_of

from crucible.control.people.openid.keyring import AGAIN_SECONDS, KEEP_SECONDS, Keyring
from crucible.control.people.openid.web import ProviderTrouble

URL = "https://id.example.org/keys"


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
def keys(provider: OpenIdProvider, watch: Watch) -> Keyring:
    return Keyring(ProviderWeb(provider), watch)


def test_keys_are_asked_for_once(keys: Keyring, provider: OpenIdProvider) -> None:
    for _ in range(3):
        found = keys.find(URL, "rs256")
        assert found is not None
        assert found.kid == "rs256"
    assert provider.asked == ["/keys"]


def test_a_new_key_is_looked_for(keys: Keyring, provider: OpenIdProvider, watch: Watch) -> None:
    assert keys.find(URL, "rs256")
    provider.listed = ("RS256", "ES256")
    assert keys.find(URL, "es256") is None, "not at once again"
    watch.time += AGAIN_SECONDS
    assert keys.find(URL, "es256")
    assert provider.asked == ["/keys"] * 2


def test_made_up_names_do_not_make_us_ask_more_often(keys: Keyring, provider: OpenIdProvider, watch: Watch) -> None:
    for n in range(100):
        watch.time += 1
        assert keys.find(URL, f"made-up-{n}") is None
    assert len(provider.asked) <= 1 + 100 / AGAIN_SECONDS


def test_keys_that_were_withdrawn_are_forgotten(keys: Keyring, provider: OpenIdProvider, watch: Watch) -> None:
    assert keys.find(URL, "rs256")
    provider.listed = ("ES256",)
    watch.time += KEEP_SECONDS + 1
    assert keys.find(URL, "rs256") is None


def test_keys_that_cannot_be_fetched_again_leave_the_others(
    keys: Keyring, provider: OpenIdProvider, watch: Watch
) -> None:
    assert keys.find(URL, "rs256")
    provider.answers["/keys"] = (500, {})
    watch.time += AGAIN_SECONDS
    with pytest.raises(ProviderTrouble):
        keys.find(URL, "new")
    assert keys.find(URL, "rs256")


def test_without_a_name_the_only_key_is_meant(keys: Keyring, provider: OpenIdProvider, watch: Watch) -> None:
    assert keys.find(URL, None) is not None
    provider.listed = ("RS256", "ES256")
    watch.time += KEEP_SECONDS + 1
    assert keys.find(URL, None) is None


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
def test_what_is_no_signing_key_is_passed_by(keys: Keyring, provider: OpenIdProvider, listed: Any) -> None:
    provider.answers["/keys"] = (200, {"keys": [listed, key_of("ES256").as_dict(private=False)]})
    assert keys.find(URL, "k") is None
    assert keys.find(URL, "es256")


@pytest.mark.parametrize("answer", [(200, {}), (200, {"keys": {}}), (200, []), (200, None), (503, {"keys": []})])
def test_answers_that_list_no_keys(keys: Keyring, provider: OpenIdProvider, answer: tuple[int, Any]) -> None:
    provider.answers["/keys"] = answer
    with pytest.raises(ProviderTrouble):
        keys.find(URL, "rs256")
