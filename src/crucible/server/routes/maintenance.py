"""Maintenance: pruning, backups of the database, and the confirmation of a restore."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body

from crucible.core.requests import BackupRequest, PruneRequest
from crucible.core.views.server import BackupView, ConfirmedView, PruneView
from crucible.server.context import Control, Who
from crucible.server.http.problems import problem_responses

router = APIRouter(prefix="/api/v1", tags=["upkeep"])


_BY_SETTINGS = PruneRequest()


@router.post("/prune")
async def prune(control: Control, who: Who, body: Annotated[PruneRequest, Body()] = _BY_SETTINGS) -> PruneView:
    """Delete what retention no longer keeps: files of old jobs, checkpoints, unused bundles.

    The response counts them; `items` says of each what it was and why it was deleted.
    """
    return await control.maintenance.prune(who, older_than=body.older_than_seconds, dry_run=body.dry_run)


@router.post("/db/backup", responses=problem_responses(409))
async def backup(body: BackupRequest, control: Control, who: Who) -> BackupView:
    """Copy a consistent snapshot of the database to a new file on the server's disk, while jobs keep running."""
    return await control.maintenance.backup(who, body.path)


@router.post("/db/confirm")
async def confirm(control: Control, who: Who) -> ConfirmedView:
    """Confirm that a restored database is correct, and do what was held back since the restore.

    Until then nothing from before the restore is terminated, because the backup may not know that it is in use, and
    jobs wait until no machine from before is left and every backend has shown that all its machines are known.
    """
    return await control.maintenance.confirm_restore(who)
