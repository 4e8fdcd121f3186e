"""Signatures that every library of Standard Webhooks knows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.core.errors import NotAllowed, Trouble
from crucible.core.secret import Secret
from crucible.core.signing import ID, SIGNATURE, TIME, sign_message, signing_secret, verify_message

SECRET, BODY, NOW = signing_secret(b"k" * 32), b'{"a": 1}', 1_700_000_000.0
OTHER = signing_secret(b"o" * 32)


def headers(*secrets: Secret, body: bytes = BODY, at: float = NOW) -> dict[str, str]:
    return sign_message(secrets or (SECRET,), "msg_1", body, at)


def test_the_example_of_the_standard() -> None:
    """From the specification's own test vectors."""
    secret = Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    made = sign_message([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', 1614265330)
    assert made == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@given(st.binary(max_size=200), st.text(min_size=1, max_size=20, alphabet="abc_0"), st.floats(0, 2e9))
def test_what_was_signed_is_known_again(body: bytes, message: str, at: float) -> None:
    verify_message(SECRET, sign_message([SECRET], message, body, at), body, at)


def test_names_of_headers_may_be_written_as_servers_like() -> None:
    verify_message(SECRET, {name.title(): value for name, value in headers().items()}, BODY, NOW)


def test_while_a_secret_is_replaced_either_is_good() -> None:
    both = headers(OTHER, SECRET)
    verify_message(SECRET, both, BODY, NOW)
    verify_message(OTHER, both, BODY, NOW)
    with pytest.raises(NotAllowed):
        verify_message(signing_secret(b"x" * 32), both, BODY, NOW)


@pytest.mark.parametrize(
    ("secret", "body", "now"),
    [
        (OTHER, BODY, NOW),
        (SECRET, b"{}", NOW),
        (SECRET, BODY + b" ", NOW),
        (SECRET, BODY, NOW + 301),
        (SECRET, BODY, NOW - 301),
    ],
)
def test_another_secret_body_or_time_is_refused(secret: Secret, body: bytes, now: float) -> None:
    with pytest.raises(NotAllowed) as caught:
        verify_message(secret, headers(), body, now)
    assert SECRET.reveal() not in str(caught.value)


@pytest.mark.parametrize("now", [NOW - 300, NOW + 300])
def test_five_minutes_are_no_matter(now: float) -> None:
    verify_message(SECRET, headers(), BODY, now)


@pytest.mark.parametrize("name", [ID, TIME, SIGNATURE])
@pytest.mark.parametrize("value", [None, "", "x", "1700000001", "v1", "v1,", "v2,abc", "١٧٠٠", "9" * 30, "é", ", ,,"])
def test_headers_that_are_changed_or_missing(name: str, value: str | None) -> None:
    given = {**headers(), name: value}
    with pytest.raises(NotAllowed):
        verify_message(SECRET, {key: text for key, text in given.items() if text is not None}, BODY, NOW)


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_é", "whsec_not base64!", "***"])
def test_what_is_no_secret_is_told_and_not_repeated(text: str) -> None:
    with pytest.raises(Trouble) as caught:
        verify_message(Secret(text), headers(), BODY, NOW)
    assert "not base64!" not in str(caught.value)
    assert "notifications rotate" in caught.value.fix
