"""Machines: everything that bills or holds slots."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from crucible.core.views.compute import MachinePage, MachineView, OrphanPage, OrphanView
from crucible.server.context import Control, MachineRef, Who
from crucible.server.http.problems import problem_responses

router = APIRouter(prefix="/api/v1/machines", tags=["machines"])


@router.get("")
async def machines(
    control: Control, who: Who, all: Annotated[bool, Query(description="include machines that are gone")] = False
) -> MachinePage:
    """List the machines that are not gone, and what occupies them."""
    return await control.machines.list_machines(who, all=all)


@router.get("/orphans")
async def orphans(control: Control, who: Who) -> OrphanPage:
    """List machines that carry this server's tag at their backend, but are unknown here or should be gone.

    This asks every connected backend, so it may take a while. Nothing is terminated.
    """
    return await control.machines.list_orphans(who)


@router.post("/{machine}/terminate", status_code=202, responses=problem_responses(404, 409))
async def terminate(
    machine: MachineRef,
    control: Control,
    who: Who,
    lost: Annotated[bool, Query(description="it will never be heard of again: take it for gone")] = False,
) -> MachineView | OrphanView:
    """Terminate a machine, whatever runs on it. Idempotent, also for a machine that is gone.

    With `lost`, a machine whose provider does not answer counts as gone at once, and its jobs may start elsewhere. If
    it returns, it is terminated. 409 if the provider answers.
    """
    if lost:
        return await control.machines.declare_lost(who, machine)
    return await control.machines.terminate(who, machine)
