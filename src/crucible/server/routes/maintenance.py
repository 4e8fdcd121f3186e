"""Upkeep: what is removed after its time, and copies of the database."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body

from crucible.core.requests import BackupRequest, PruneRequest
from crucible.core.views.server import BackupView, ConfirmedView, PruneView
from crucible.server.context import Control, Who
from crucible.server.http.problems import problem_responses

router = APIRouter(prefix="/api/v1", tags=["upkeep"])


_AS_SET = PruneRequest()


@router.post("/prune")
async def prune(control: Control, who: Who, wish: Annotated[PruneRequest, Body()] = _AS_SET) -> PruneView:
    """Remove what retention allows: old jobs' files, checkpoints that need not be kept, unused bundles.

    The answer counts them, and `items` says of each what it was and why it went.
    """
    return await control.maintenance.prune(who, older_than=wish.older_than_seconds, dry_run=wish.dry_run)


@router.post("/db/backup", responses=problem_responses(409))
async def backup(wish: BackupRequest, control: Control, who: Who) -> BackupView:
    """Copy the database, as it is at one moment, to a new file on the server's disk; jobs go on meanwhile."""
    return await control.maintenance.backup(who, wish.path)


@router.post("/db/confirm")
async def confirm(control: Control, who: Who) -> ConfirmedView:
    """Say that the database, which came from a backup, is right: what was held back since the restore is done.

    Until then nothing from before the restore is ended, as what the copy does not know may be in use, and jobs
    wait until no machine from before lives and every backend has shown that all its machines are known.
    """
    return await control.maintenance.confirm_restore(who)
