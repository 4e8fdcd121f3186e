"""How jobs do: one judged, several side by side."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from crucible.core.views.comparisons import ComparisonView
from crucible.core.views.jobs import HealthView
from crucible.server.context import Control, JobRef, Who
from crucible.server.http.problems import problem_responses

router = APIRouter(prefix="/api/v1", tags=["health"])


@router.get("/jobs/{id}/health", responses=problem_responses(404, 409))
async def health(id: JobRef, control: Control, who: Who) -> HealthView:
    """Whether a job does well: `verdict`, `level` (bad, warning, good), `message`, `advice`.

    `findings` has all that was seen, the worst first, each with its series, step and numbers.
    """
    return await control.jobs.health(who, id)


@router.get("/compare", responses=problem_responses(404, 409))
async def compare(
    control: Control,
    who: Who,
    job: Annotated[list[str], Query(min_length=1, max_length=50, description="2 to 20, each named as in paths")],
) -> ComparisonView:
    """Jobs side by side: config, last and best of each metric, duration, cost; what differs is marked."""
    return await control.jobs.compare(who, job)
