"""Verifies notifications, for programs that receive them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from crucible.core.errors import BadInput
from crucible.core.secret import Secret
from crucible.core.signing import TOLERANCE, verify_message


def verify_webhook(
    secret: str | Secret,
    headers: Mapping[str, str],
    body: bytes | str,
    *,
    tolerance: float = TOLERANCE,
    now: float | None = None,
) -> dict[str, Any]:
    """Return the message after checking its signature and time.

    Raises NotAllowed if either is wrong, BadInput for a body that is not JSON, and Trouble for an invalid secret (the
    server then retries). An error's `http_status` is the status to respond with.

    `secret` is what `crucible notifications add` printed; `headers` and `body` are those of the request, the body byte
    for byte. `tolerance` is the maximum age of a message in seconds. A message may be delivered twice: its header
    `webhook-id` is the same each time.
    """
    content = body.encode() if isinstance(body, str) else bytes(body)
    key = secret if isinstance(secret, Secret) else Secret(secret)
    verify_message(key, headers, content, time.time() if now is None else now, tolerance)
    try:
        message = json.loads(content)
    except ValueError as error:
        raise BadInput("The message is not JSON.", why=str(error), fix="Answer 422.") from error
    if not isinstance(message, dict):
        raise BadInput("The message is not a JSON object.", fix="Answer 422.")
    return message
