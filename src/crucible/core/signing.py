"""Sign and verify webhook messages by the Standard Webhooks scheme, which libraries in many languages support.

A message has three headers: `webhook-id`, the same for every delivery; `webhook-timestamp`, when it was sent;
`webhook-signature`, one or more of `v1,<base64>` separated by blanks. Each is the HMAC-SHA256, under a secret, of id,
time and body joined by dots. A secret is `whsec_` and the key in base64.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping

from crucible.core.errors import NotAllowed, Trouble
from crucible.core.secret import Secret

ID, TIME, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
PREFIX, VERSION = "whsec_", "v1"
KEY_BYTES = 32
TOLERANCE = 300.0
"""Seconds that a message's timestamp may be in the past or the future."""


def signing_secret(key: bytes) -> Secret:
    """Return the secret for these random bytes, in the form that receivers get."""
    return Secret(PREFIX + base64.b64encode(key).decode())


def sign_message(secrets: Iterable[Secret], message: str, body: bytes, at: float) -> dict[str, str]:
    """Return the headers of a message. Several secrets give several signatures, of which a receiver needs one."""
    seconds = str(int(at))
    signatures = (f"{VERSION},{_digest(secret, message, seconds, body)}" for secret in secrets)
    return {ID: message, TIME: seconds, SIGNATURE: " ".join(signatures)}


def verify_message(
    secret: Secret, headers: Mapping[str, str], body: bytes, now: float, tolerance: float = TOLERANCE
) -> None:
    """Raise NotAllowed unless the message was signed with this secret, recently. Compares in constant time.

    An invalid secret raises Trouble: the receiver is at fault, so the message has to be sent again.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    message, seconds = lower.get(ID, ""), lower.get(TIME, "")
    if not (message and seconds.isascii() and seconds.isdigit() and len(seconds) < 20):
        raise _refusal("Its id or its timestamp is missing.")
    expected = _digest(secret, message, seconds, body).encode()
    found = [word.partition(",")[::2] for word in lower.get(SIGNATURE, "").split()]
    matching = [hmac.compare_digest(expected, value.encode()) for version, value in found if version == VERSION]
    if not any(matching):
        raise _refusal("None of its signatures matches this secret.")
    if abs(now - int(seconds)) > tolerance:
        raise _refusal(f"It was sent {abs(now - int(seconds)):.0f} s {'ago' if now > int(seconds) else 'ahead'}.")


def _digest(secret: Secret, message: str, seconds: str, body: bytes) -> str:
    content = f"{message}.{seconds}.".encode() + body
    return base64.b64encode(hmac.new(_key(secret), content, hashlib.sha256).digest()).decode()


def _key(secret: Secret) -> bytes:
    try:
        key = base64.b64decode(secret.reveal().strip().removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        fix = "Give it as `crucible notifications add` printed it; `notifications rotate` makes another."
        raise Trouble("This is not a hook's secret.", why=f"A secret starts with {PREFIX} and is base64.", fix=fix)
    return key


def _refusal(why: str) -> NotAllowed:
    return NotAllowed(
        "The message was not signed with this hook's secret just now.",
        why=why,
        fix="Answer 401 and do nothing. Check that the body is unchanged, and the clocks of both computers.",
    )
