"""Output of a job, by byte offset."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import PlainTextResponse

from crucible.core.views.frames import MAX_OFFSET
from crucible.server.context import Control, JobRef, Who
from crucible.server.http.problems import problem_responses
from crucible.server.security.size_limits import AttemptNumber, LogBytes, MiB

router = APIRouter(prefix="/api/v1/jobs", tags=["logs"])


@router.get("/{id}/logs", responses=problem_responses(404, 409), response_class=PlainTextResponse)
async def logs(
    id: JobRef,
    control: Control,
    who: Who,
    attempt: AttemptNumber = None,
    offset: Annotated[int, Query(ge=-MAX_OFFSET, le=MAX_OFFSET, description="below 0: from the end")] = 0,
    limit: LogBytes = MiB,
    since: Annotated[float | None, Query(ge=0, allow_inf_nan=False, description="seconds since 1970")] = None,
) -> PlainTextResponse:
    """Output of one attempt (the newest unless named) as it was written.

    `X-Crucible-Next` is the offset to go on from; with `X-Crucible-Complete: true` nothing follows it.
    """
    page = await control.outputs.logs(who, id, attempt=attempt, offset=offset, limit=limit, since=since)
    headers = {
        "X-Crucible-Attempt": str(page.attempt),
        "X-Crucible-Attempts": str(page.attempts),
        "X-Crucible-Offset": str(page.start),
        "X-Crucible-Next": str(page.next),
        "X-Crucible-Complete": "true" if page.complete else "false",
    }
    return PlainTextResponse(page.data, headers=headers)
