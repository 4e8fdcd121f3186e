"""Metrics of a job: series of numbers, thinned to what a chart can show."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from crucible.core.views.records import MetricsView
from crucible.server.context import Control, JobRef, Who
from crucible.server.http.problems import problem_responses

router = APIRouter(prefix="/api/v1/jobs", tags=["metrics"])


@router.get("/{id}/metrics", responses=problem_responses(404, 409))
async def metrics(
    id: JobRef,
    control: Control,
    who: Who,
    series: Annotated[list[str] | None, Query(max_length=200, description="names; all unless given")] = None,
    points: Annotated[int, Query(ge=1, le=10_000, description="at most this many of each series")] = 500,
) -> MetricsView:
    """Each series with count, last, min, max and its points `[step, value, at]`."""
    return await control.outputs.metrics(who, id, series=series or [], points=points)
