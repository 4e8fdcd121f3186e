"""What is decided about a sign-in without asking anybody."""

from __future__ import annotations

from typing import Any

import pytest

from crucible.core.errors import BadInput
from crucible.core.people.openid import (
    Client,
    Person,
    Refusal,
    challenge_of,
    checked_client,
    gate,
    local_path,
    person_of,
)
from crucible.core.secret import Secret

ISSUER = "https://id.example.org"


@pytest.mark.parametrize("path", ["/", "/jobs", "/jobs?all=1&x=%2F#top", "/a//b", "/?next=https://evil.example"])
def test_paths_of_this_server(path: str) -> None:
    assert local_path(path) == path


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
        local_path(path)
    assert caught.value.fix


@pytest.mark.parametrize("issuer", [ISSUER, f"{ISSUER}/realms/main", "http://127.0.0.1:8080", "http://localhost:1/x"])
def test_issuers(issuer: str) -> None:
    assert checked_client(Client(issuer, "crucible")).issuer == issuer


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
        checked_client(Client(issuer, "crucible"))
    assert "oidc_issuer" in caught.value.fix


def test_users_are_made_for_some_domains_only() -> None:
    with pytest.raises(BadInput, match="of some domains only"):
        checked_client(Client(ISSUER, "crucible", project="vision"))
    assert checked_client(Client(ISSUER, "crucible", project="vision", domains=("example.org",)))


def test_the_secret_is_not_shown() -> None:
    assert "hunter2" not in repr(Client(ISSUER, "crucible", Secret("hunter2")))


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
    assert person_of({"sub": "7", **claims}) == Person("7", email)


def test_a_tie_is_of_one_provider_and_one_subject() -> None:
    ties = {
        person.tie(issuer) for person in (Person("1"), Person("2")) for issuer in (ISSUER, "https://id.example.net")
    }
    assert len(ties) == 4
    assert Person("1", "ada@example.org").tie(ISSUER) == Person("1").tie(ISSUER)


@pytest.mark.parametrize(
    ("email", "refusal"),
    [
        ("ada@example.org", None),
        ("ada@example.com", Refusal.DOMAIN),
        ("ada@sub.example.org", Refusal.DOMAIN),
        (None, Refusal.UNVERIFIED),
    ],
)
def test_domains(email: str | None, refusal: Refusal | None) -> None:
    client = Client(ISSUER, "crucible", domains=("example.org",))
    assert gate(client, Person("1", email)) is refusal
    assert gate(Client(ISSUER, "crucible"), Person("1", email)) is None


def test_every_refusal_says_what_to_do() -> None:
    assert all(refusal.error.fix and refusal.error.http_status == 403 for refusal in Refusal)
    told = {str(refusal.error) for refusal in (Refusal.UNKNOWN, Refusal.DISABLED, Refusal.TIED)}
    assert len(told) == 1, "who is a user here is not told"


def test_the_challenge_of_rfc_7636() -> None:
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert challenge_of(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
