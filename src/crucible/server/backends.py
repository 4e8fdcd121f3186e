"""Places that can run jobs, and the named sizes."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from crucible.core.spec import JobSpec
from crucible.core.tiers import TIERS
from crucible.server.answers import answer
from crucible.server.context import Control
from crucible.server.problems import documented

router = APIRouter(prefix="/api/v1", tags=["places"])


@router.get("/backends")
async def backends(control: Control) -> Response:
    """Each backend with its abilities, its offers, and what is missing where it is not connected."""
    return answer({"items": await control.backends()})


@router.post("/plan", responses=documented(413))
async def plan(spec: JobSpec, control: Control) -> Response:
    """Where this job would run and for how much: a dry run of `POST /api/v1/jobs`, which changes nothing.

    `offers` of all connected places, the job's own first, each with what it costs until its hard end (`most_micros`);
    `rejected` with the reason; `chosen`, with the call that would be sent, or null where the job would wait.
    """
    return answer(await control.plan(spec))


@router.get("/tiers")
async def tiers() -> Response:
    """The named sizes a job may ask for."""
    return answer({"items": [tier.as_dict() for tier in TIERS.values()]})
