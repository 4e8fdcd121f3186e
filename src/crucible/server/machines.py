"""Machines: whatever bills or holds slots for us."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from crucible.server.answers import answer
from crucible.server.context import Control

router = APIRouter(prefix="/api/v1", tags=["places"])


@router.get("/machines")
async def machines(control: Control) -> Response:
    """Machines that are not gone, and who occupies them."""
    return answer({"items": await control.machines()})
