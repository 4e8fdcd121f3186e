"""Events: what is now true, numbered and never changed."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from crucible.server.answers import answer
from crucible.server.context import Control, JobRef, Who
from crucible.server.limits import EventPage, Offset
from crucible.server.problems import documented

router = APIRouter(prefix="/api/v1", tags=["events"])


@router.get("/jobs/{id}/events", responses=documented(404, 409))
async def of_job(id: JobRef, control: Control, who: Who, after: Offset = 0, limit: EventPage = 200) -> Response:
    """Events of one job with a number `n` above `after`, in order."""
    return answer({"items": await control.outputs.events(who, id, after=after, limit=limit)})


@router.get("/events")
async def of_all(control: Control, who: Who, after: Offset = 0, limit: EventPage = 200) -> Response:
    """Events of all jobs with a `cursor` above `after`, in one order that never changes."""
    return answer({"items": await control.outputs.events(who, None, after=after, limit=limit)})
