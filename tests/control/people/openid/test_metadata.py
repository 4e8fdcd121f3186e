"""What a provider says of itself."""

from __future__ import annotations

from typing import Any

import pytest
from tests.openid_provider import CLIENT, ISSUER, OpenIdProvider, transport

from crucible.control.people.openid.provider import Metadata, fetch_metadata
from crucible.control.people.openid.transport import ProviderTrouble
from crucible.core.people.openid import OpenIdClient


def found(provider: OpenIdProvider, issuer: str = ISSUER) -> Metadata:
    return fetch_metadata(OpenIdClient(issuer, CLIENT), transport(provider))


def test_where_to_send_people_and_where_to_ask() -> None:
    about = found(OpenIdProvider())
    assert about.authorization_endpoint == f"{ISSUER}/authorize"
    assert about.token_endpoint == f"{ISSUER}/token"
    assert about.jwks_uri == f"{ISSUER}/keys"


def test_an_issuer_below_a_path() -> None:
    provider = OpenIdProvider(issuer=f"{ISSUER}/realms/main")
    assert found(provider, f"{ISSUER}/realms/main").issuer == f"{ISSUER}/realms/main"
    assert provider.asked == ["/realms/main/.well-known/openid-configuration"]


def test_a_stroke_at_the_end_of_the_issuer_is_the_providers_to_have() -> None:
    assert found(OpenIdProvider(metadata_more={"issuer": f"{ISSUER}/"})).issuer == f"{ISSUER}/"


@pytest.mark.parametrize(
    "more",
    [
        {"token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_jwt", "private_key_jwt"]},
        {"id_token_signing_alg_values_supported": ["ES256"]},
        {"subject_types_supported": None, "response_types_supported": None},
    ],
)
def test_parts_that_nobody_reads_refuse_no_provider(more: dict[str, Any]) -> None:
    """Okta names `private_key_jwt` without what it may be signed with; others never sign with RS256."""
    assert found(OpenIdProvider(metadata_more=more)).token_endpoint == f"{ISSUER}/token"


@pytest.mark.parametrize("name", ["https://evil.example", "http://id.example.org", f"{ISSUER}/realms/other", ""])
def test_a_provider_that_calls_itself_something_else(name: str) -> None:
    with pytest.raises(ProviderTrouble) as caught:
        found(OpenIdProvider(metadata_more={"issuer": name}))
    assert "oidc_issuer" in caught.value.why


@pytest.mark.parametrize("name", ["issuer", "authorization_endpoint", "token_endpoint", "jwks_uri"])
@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "",
        "ftp://id.example.org/x",
        "https://a b",
        "javascript:alert(1)",
        "https://[::1",
        "https:///x",
        "https://id:99999/",
    ],
)
def test_descriptions_that_lack_something(name: str, value: Any) -> None:
    with pytest.raises(ProviderTrouble):
        found(OpenIdProvider(metadata_more={name: value}))


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint"])
def test_endpoints_in_the_open(name: str) -> None:
    with pytest.raises(ProviderTrouble, match="sign-in provider failed at") as caught:
        found(OpenIdProvider(metadata_more={name: "http://id.example.org/x"}))
    assert "not encrypted" in caught.value.why


def test_no_variable_of_the_environment_lets_endpoints_be_in_the_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
    with pytest.raises(ProviderTrouble):
        found(OpenIdProvider(metadata_more={"token_endpoint": "http://id.example.org/x"}))


@pytest.mark.parametrize("answer", [(404, {}), (302, {}), (200, []), (200, "text"), (200, None)])
def test_answers_that_are_no_description(answer: tuple[int, Any]) -> None:
    with pytest.raises(ProviderTrouble):
        found(OpenIdProvider(answers={"/.well-known/openid-configuration": answer}))
