"""Forecasts: what plans said of how long programs take, carried in the plans' own ids until a job follows one.

Nothing is kept: every server of the deployment reads what any of them said, also one that was started since. An id is
signed, so that only what a server said is believed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass

from crucible.core.routing.experience import Like
from crucible.core.spec import MAX_PLAN
from crucible.wire.messages import derive_secret

SIGNATURE_BYTES = 16
MAX_NAME = 100
"""Characters of the name of a framework or a GPU, as predictions keep them."""


@dataclass(frozen=True)
class Forecast:
    """Of one program at one kind of machine.

    `analytic` are the seconds of computing that the model says, `predicted` those that were told.
    """

    like: Like
    backend: str
    instance_type: str
    analytic: float
    predicted: float


class Forecasts:
    """`key` is the deployment's."""

    def __init__(self, key: bytes) -> None:
        self._key = derive_secret(key, "plan", "forecast")

    def id_of(self, forecast: Forecast) -> str | None:
        """The same for the same forecast; None for one that has names beyond measure."""
        like = forecast.like
        names = (like.framework[:MAX_NAME], like.gpu[:MAX_NAME], like.script, forecast.backend, forecast.instance_type)
        said = _text(json.dumps([*names, forecast.analytic, forecast.predicted], separators=(",", ":")).encode())
        id = f"{said}.{self._signature(said)}"
        return id if len(id) <= MAX_PLAN else None

    def of(self, plan: str) -> Forecast | None:
        """What the plan of this id said; None unless a server of this deployment made the id."""
        said, _, signature = plan.partition(".")
        if not hmac.compare_digest(signature, self._signature(said)):
            return None
        framework, gpu, script, backend, instance_type, analytic, predicted = json.loads(_bytes(said))
        return Forecast(Like(framework, gpu, script), backend, instance_type, analytic, predicted)

    def _signature(self, said: str) -> str:
        return _text(hmac.new(self._key, said.encode(), hashlib.sha256).digest()[:SIGNATURE_BYTES])


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
