"""A receiver's one line."""

from __future__ import annotations

import time

import pytest

import crucible.client
from crucible.client import verify_webhook
from crucible.core.errors import BadInput, NotAllowed, Trouble
from crucible.core.signing import sign_message, signing_secret

SECRET = signing_secret(b"k" * 32)
BODY = b'{"type": "job.completed"}'


def test_a_message_of_just_now_comes_back_as_what_it_says() -> None:
    headers = sign_message([SECRET], "msg_1", BODY, time.time())
    assert verify_webhook(SECRET.reveal(), headers, BODY) == {"type": "job.completed"}
    assert verify_webhook(SECRET, headers, BODY.decode()) == {"type": "job.completed"}
    assert "verify_webhook" in crucible.client.__all__


def test_an_old_one_is_refused_unless_somebody_has_time() -> None:
    headers = sign_message([SECRET], "msg_1", BODY, time.time() - 1000)
    with pytest.raises(NotAllowed, match="not signed with this hook's secret"):
        verify_webhook(SECRET, headers, BODY)
    assert verify_webhook(SECRET, headers, BODY, tolerance=2000)


def test_a_changed_one_is_refused() -> None:
    headers = sign_message([SECRET], "msg_1", BODY, 5.0)
    with pytest.raises(NotAllowed):
        verify_webhook(SECRET, headers, BODY.replace(b"completed", b"cancelled"), now=5.0)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[1]", b'"text"'])
def test_what_is_signed_and_no_message_is_told(body: bytes) -> None:
    with pytest.raises(BadInput):
        verify_webhook(SECRET, sign_message([SECRET], "msg_1", body, 5.0), body, now=5.0)


def test_a_receiver_without_its_secret_asks_for_the_message_again() -> None:
    """422 would mean this very message, which would then be given up for good."""
    with pytest.raises(Trouble) as caught:
        verify_webhook("", sign_message([SECRET], "msg_1", BODY, 5.0), BODY, now=5.0)
    assert caught.value.http_status == 503
