"""Model plugins of the server's Python, over the API."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from crucible.client.answers import read
from crucible.client.serverviews import ModelPage, ModelView
from crucible.client.transport import Transport
from crucible.client.views import JobView

if TYPE_CHECKING:
    from crucible.core.models import Order

SECONDS = 180.0
"""Each plugin is asked, in a process that may import a large framework."""


class Models:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def listed(self) -> tuple[ModelView, ...]:
        """All of them, the broken ones with `error`."""
        response = self._transport.request("GET", "/api/v1/models", seconds=SECONDS)
        return read(ModelPage, response).items

    def one(self, name: str) -> ModelView:
        path = f"/api/v1/models/{quote(name, safe='')}"
        return read(ModelView, self._transport.request("GET", path, seconds=SECONDS))

    def submit(self, order: Order, job: Mapping[str, object] | None = None, *, key: str | None = None) -> JobView:
        """Train, ask or measure one. `job` are fields of a spec: `backend`, `resources`, …"""
        body = {
            "method": order.method,
            "config": order.config,
            "inputs": order.inputs,
            "callbacks": list(order.callbacks),
            "job": dict(job or {}),
        }
        response = self._transport.request(
            "POST",
            f"/api/v1/models/{quote(order.model, safe='')}/jobs",
            body=body,
            headers={"Idempotency-Key": key or uuid.uuid4().hex},
            repeat=True,
            seconds=SECONDS,
        )
        return read(JobView, response)
