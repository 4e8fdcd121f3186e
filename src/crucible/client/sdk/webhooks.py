"""For receivers of notifications: is a message really from our server?"""

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
    """The message, once its signature and time are right; raises NotAllowed.

    And BadInput for what is no JSON, Trouble for a secret that is none: the message has to come again then.

    `secret` is what `crucible notifications add` printed; `headers` and `body` as the request had them, the body
    byte for byte. An error's `http_status` is what to answer. `tolerance`: seconds that the message may be old. A
    message may come twice: its header `webhook-id` is the same each time.
    """
    content = body.encode() if isinstance(body, str) else bytes(body)
    held = secret if isinstance(secret, Secret) else Secret(secret)
    verify_message(held, headers, content, time.time() if now is None else now, tolerance)
    try:
        message = json.loads(content)
    except ValueError as error:
        raise BadInput("The message is no JSON.", why=str(error), fix="Answer 422.") from error
    if not isinstance(message, dict):
        raise BadInput("The message is no JSON object.", fix="Answer 422.")
    return message
