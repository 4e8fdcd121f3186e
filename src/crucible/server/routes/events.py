"""Events: what is now true, numbered and never changed."""

from __future__ import annotations

from fastapi import APIRouter

from crucible.core.views.records import EventPage
from crucible.server.context import Control, JobRef, Who
from crucible.server.http.problems import problem_responses
from crucible.server.security.size_limits import EventCount, Offset

router = APIRouter(prefix="/api/v1", tags=["events"])


@router.get("/jobs/{id}/events", responses=problem_responses(404, 409))
async def of_job(id: JobRef, control: Control, who: Who, after: Offset = 0, limit: EventCount = 200) -> EventPage:
    """Events of one job with a number `n` above `after`, in order."""
    return await control.outputs.events(who, id, after=after, limit=limit)


@router.get("/events")
async def of_all(control: Control, who: Who, after: Offset = 0, limit: EventCount = 200) -> EventPage:
    """Events of all jobs with a `cursor` above `after`, in one order that never changes."""
    return await control.outputs.events(who, None, after=after, limit=limit)
