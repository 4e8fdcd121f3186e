"""Upkeep: what is removed after its time, and copies of the database."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated

from fastapi import APIRouter, Body
from pydantic import BaseModel, ConfigDict, Field, field_validator

from crucible.core.views.server import BackupView, ConfirmedView, PruneView
from crucible.server.context import Control, Who
from crucible.server.http.problems import problem_responses

LONGEST_AGE = 100 * 365 * 86400.0

router = APIRouter(prefix="/api/v1", tags=["upkeep"])


class _Wish(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Pruning(_Wish):
    """How long ago a job must have ended; 30 days unless given."""

    older_than_seconds: Annotated[float | None, Field(ge=0, le=LONGEST_AGE, allow_inf_nan=False)] = None
    dry_run: Annotated[bool, Field(description="only say what would be removed")] = False


class Backup(_Wish):
    path: Annotated[str, Field(min_length=1, max_length=4096, description="absolute, on the server's disk")]

    @field_validator("path")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if "\x00" in value or not PurePath(value).is_absolute():
            raise ValueError("it has to be an absolute path on the server's disk")
        return value


_AS_SET = Pruning()


@router.post("/prune")
async def prune(control: Control, who: Who, wish: Annotated[Pruning, Body()] = _AS_SET) -> PruneView:
    """Remove what retention allows: old jobs' files, checkpoints that need not be kept, unused bundles.

    The answer counts them, and `items` says of each what it was and why it went.
    """
    return await control.maintenance.prune(who, older_than=wish.older_than_seconds, dry_run=wish.dry_run)


@router.post("/db/backup", responses=problem_responses(409))
async def backup(wish: Backup, control: Control, who: Who) -> BackupView:
    """Copy the database, as it is at one moment, to a new file on the server's disk; jobs go on meanwhile."""
    return await control.maintenance.backup(who, wish.path)


@router.post("/db/confirm")
async def confirm(control: Control, who: Who) -> ConfirmedView:
    """Say that the database, which came from a backup, is right: what was held back since the restore is done.

    Until then nothing from before the restore is ended, as what the copy does not know may be in use, and jobs
    wait until no machine from before lives and every place has shown that all it holds is known.
    """
    return await control.maintenance.confirm_restore(who)
