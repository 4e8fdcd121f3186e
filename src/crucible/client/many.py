"""Many jobs in one request: submitted, or asked to end."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from crucible.client.answers import read
from crucible.client.found import CancelledPage, SubmittedPage
from crucible.client.transport import Transport

if TYPE_CHECKING:
    from crucible.core.jobfilter import JobFilter
    from crucible.core.spec import JobSpec

SECONDS = 120.0


class Many:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def submit(self, specs: Sequence[JobSpec], *, keys: Sequence[str] | None = None) -> SubmittedPage:
        """Up to 500 jobs, each with a key of its own; the answer says of each what became of it."""
        made = keys if keys is not None else [uuid.uuid4().hex for _ in specs]
        jobs = [{"spec": s.model_dump(mode="json"), "key": key} for s, key in zip(specs, made, strict=True)]
        response = self._transport.request(
            "POST", "/api/v1/jobs/bulk", body={"jobs": jobs}, repeat=True, seconds=SECONDS
        )
        return read(SubmittedPage, response)

    def cancel(
        self, wanted: JobFilter | None = None, *, ids: Sequence[str] = (), dry_run: bool = False
    ) -> CancelledPage:
        """Ask for the end of the jobs that fit (up to 1,000, newest first), or of those of these ids."""
        which = (
            {"ids": list(ids)} if wanted is None else {"filter": wanted.model_dump(mode="json", exclude_defaults=True)}
        )
        body = {**which, "dry_run": dry_run}
        response = self._transport.request("POST", "/api/v1/jobs/cancel", body=body, repeat=True, seconds=SECONDS)
        return read(CancelledPage, response)
