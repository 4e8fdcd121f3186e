"""Places that can run jobs, and the named sizes."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from crucible.core.tiers import TIERS
from crucible.server.answers import answer
from crucible.server.context import Control

router = APIRouter(prefix="/api/v1", tags=["places"])


@router.get("/backends")
async def backends(control: Control) -> Response:
    """Each backend with its abilities, its offers, and what is missing where it is not connected."""
    return answer({"items": await control.backends()})


@router.get("/tiers")
async def tiers() -> Response:
    """The named sizes a job may ask for."""
    return answer({"items": [tier.as_dict() for tier in TIERS.values()]})
