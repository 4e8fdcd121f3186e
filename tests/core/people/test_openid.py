"""What is decided about a sign-in without asking anybody."""

from __future__ import annotations

from typing import Any

import pytest

from crucible.core.errors import BadInput
from crucible.core.people.openid import (
    LoginRefusal,
    OpenIdClient,
    ProviderIdentity,
    check_domain,
    make_challenge,
    read_claims,
    validate_client,
    validate_local_path,
)
from crucible.core.secret import Secret

ISSUER = "https://id.example.org"


@pytest.mark.parametrize("path", ["/", "/jobs", "/jobs?all=1&x=%2F#top", "/a//b", "/?next=https://evil.example"])
def test_paths_of_this_server(path: str) -> None:
    assert validate_local_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "jobs",
        "//evil.example",
        "///evil.example",
        "/\\evil.example",
        "\\/evil.example",
        "/a\\b",
        "https://evil.example",
        "javascript:alert(1)",
        "/\t/evil.example",
        "/\n/evil.example",
        " /jobs",
        "/jobs ",
        "/jöbs",
        "/\x00",
        "/" + "x" * 2000,
    ],
)
def test_paths_that_could_lead_elsewhere(path: str) -> None:
    with pytest.raises(BadInput) as caught:
        validate_local_path(path)
    assert caught.value.fix


@pytest.mark.parametrize("issuer", [ISSUER, f"{ISSUER}/realms/main", "http://127.0.0.1:8080", "http://localhost:1/x"])
def test_issuers(issuer: str) -> None:
    assert validate_client(OpenIdClient(issuer, "crucible")).issuer == issuer


@pytest.mark.parametrize(
    "issuer",
    [
        "http://id.example.org",
        "https://",
        "https://id.example.org/?x=1",
        "https://id.example.org:port",
        "https://" + "x" * 300,
    ],
)
def test_issuers_that_are_none_or_in_the_open(issuer: str) -> None:
    with pytest.raises(BadInput) as caught:
        validate_client(OpenIdClient(issuer, "crucible"))
    assert "oidc_issuer" in caught.value.fix


def test_users_are_made_for_some_domains_only() -> None:
    with pytest.raises(BadInput, match="only with a list of e-mail domains"):
        validate_client(OpenIdClient(ISSUER, "crucible", project="vision"))
    assert validate_client(OpenIdClient(ISSUER, "crucible", project="vision", domains=("example.org",)))


def test_the_secret_is_not_shown() -> None:
    assert "hunter2" not in repr(OpenIdClient(ISSUER, "crucible", Secret("hunter2")))


@pytest.mark.parametrize(
    ("claims", "email"),
    [
        ({"email": "Ada@Example.org", "email_verified": True}, "ada@example.org"),
        ({"email": "ada@example.org", "email_verified": "true"}, "ada@example.org"),
        ({"email": "ada@example.org", "email_verified": 1}, None),
        ({"email": "ada@example.org"}, None),
        ({"email": "ada", "email_verified": True}, None),
        ({"email_verified": True}, None),
        ({"email": "\N{KELVIN SIGN}im@example.org", "email_verified": True}, None),
    ],
)
def test_an_address_counts_if_the_provider_confirms_it(claims: dict[str, Any], email: str | None) -> None:
    assert read_claims({"sub": "7", **claims}) == ProviderIdentity("7", email)


def test_a_tie_is_of_one_provider_and_one_subject() -> None:
    ties = {
        person.subject_hash(issuer)
        for person in (ProviderIdentity("1"), ProviderIdentity("2"))
        for issuer in (ISSUER, "https://id.example.net")
    }
    assert len(ties) == 4
    assert ProviderIdentity("1", "ada@example.org").subject_hash(ISSUER) == ProviderIdentity("1").subject_hash(ISSUER)


@pytest.mark.parametrize(
    ("email", "refusal"),
    [
        ("ada@example.org", None),
        ("ada@example.com", LoginRefusal.DOMAIN),
        ("ada@sub.example.org", LoginRefusal.DOMAIN),
        (None, LoginRefusal.UNVERIFIED),
    ],
)
def test_domains(email: str | None, refusal: LoginRefusal | None) -> None:
    client = OpenIdClient(ISSUER, "crucible", domains=("example.org",))
    assert check_domain(client, ProviderIdentity("1", email)) is refusal
    assert check_domain(OpenIdClient(ISSUER, "crucible"), ProviderIdentity("1", email)) is None


def test_every_refusal_says_what_to_do() -> None:
    assert all(refusal.error.fix and refusal.error.http_status == 403 for refusal in LoginRefusal)
    told = {str(refusal.error) for refusal in (LoginRefusal.UNKNOWN, LoginRefusal.DISABLED, LoginRefusal.TIED)}
    assert len(told) == 1, "who is a user here is not told"


def test_the_challenge_of_rfc_7636() -> None:
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert make_challenge(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
