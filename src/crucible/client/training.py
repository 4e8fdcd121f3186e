"""Training tasks of tenants, over the API: `/orchestrate` and `/status`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from crucible.client.answers import read
from crucible.client.transport import Transport
from crucible.core.views.training import TaskView

SUBMIT_SECONDS = 180.0
"""A model that is named is looked up first, in a process that may import a large framework."""


class Training:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def orchestrate(self, task: Mapping[str, object], *, key: str | None = None) -> TaskView:
        """Submit once: however often the request has to be repeated, `key` makes it one job."""
        response = self._transport.request(
            "POST",
            "/orchestrate",
            body=dict(task),
            headers={"Idempotency-Key": key or uuid.uuid4().hex},
            repeat=True,
            seconds=SUBMIT_SECONDS,
        )
        return read(TaskView, response)

    def status(self, task_id: str) -> TaskView:
        return read(TaskView, self._transport.request("GET", "/status", query={"task_id": task_id}))
