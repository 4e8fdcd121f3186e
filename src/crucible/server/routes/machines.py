"""Machines: anything that bills or holds slots."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from crucible.core.views.compute import MachinePage, MachineView, OrphanPage, OrphanView
from crucible.server.context import Control, MachineRef, Who
from crucible.server.http.problems import problem_responses

router = APIRouter(prefix="/api/v1/machines", tags=["machines"])


@router.get("")
async def machines(
    control: Control, who: Who, all: Annotated[bool, Query(description="also those that are gone")] = False
) -> MachinePage:
    """Machines that are not gone, and who occupies them."""
    return await control.machines.list_machines(who, all=all)


@router.get("/orphans")
async def orphans(control: Control, who: Who) -> OrphanPage:
    """List machines that carry our tag at their backend but are unknown here or should be gone.

    Asks every connected backend, so it may take a while. Nothing is terminated.
    """
    return await control.machines.list_orphans(who)


@router.post("/{machine}/terminate", status_code=202, responses=problem_responses(404, 409))
async def terminate(machine: MachineRef, control: Control, who: Who) -> MachineView | OrphanView:
    """End a machine, whatever runs on it. Again, or for one that is gone, is harmless."""
    return await control.machines.terminate(who, machine)
