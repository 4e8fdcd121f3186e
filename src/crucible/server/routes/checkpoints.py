"""Checkpoints that a job saved, from which it can be resumed."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from crucible.core.views.jobs import CheckpointPage, CheckpointView, JobView
from crucible.server.context import CheckpointRef, Control, JobRef, Who
from crucible.server.http.problems import problem_responses
from crucible.server.http.stored_files import RANGE_STATUSES, FileResponse, send_file

router = APIRouter(prefix="/api/v1/jobs", tags=["checkpoints"])


@router.post("/{id}/checkpoint", status_code=202, responses=problem_responses(404, 409))
async def ask_checkpoint(id: JobRef, control: Control, who: Who) -> JobView:
    """Ask the running program to save a checkpoint now. It is listed once it is stored; 409 if no program runs."""
    return await control.checkpoints.request(who, id)


@router.get("/{id}/checkpoints", responses=problem_responses(404, 409))
async def list_checkpoints(id: JobRef, control: Control, who: Who) -> CheckpointPage:
    """List checkpoints, newest first: step, metric, size, SHA-256, attempt, and whether each was kept and why."""
    return await control.checkpoints.list_checkpoints(who, id)


@router.get("/{id}/checkpoints/{checkpoint}", responses=problem_responses(404, 409))
async def show_checkpoint(id: JobRef, checkpoint: CheckpointRef, control: Control, who: Who) -> CheckpointView:
    """Return one checkpoint. 404 also for one that was not kept."""
    view, _file = await control.checkpoints.file(who, id, checkpoint)
    return view


@router.head("/{id}/checkpoints/{checkpoint}/content", include_in_schema=False)
@router.get(
    "/{id}/checkpoints/{checkpoint}/content",
    response_class=FileResponse,
    responses=problem_responses(404, 409, 416, also=RANGE_STATUSES),
)
async def download(id: JobRef, checkpoint: CheckpointRef, request: Request, control: Control, who: Who) -> Response:
    """Download a checkpoint; a folder comes as a tar archive. Range and If-Range resume a download."""
    view, file = await control.checkpoints.file(who, id, checkpoint)
    return await send_file(request, control.store, file, view.file_name)
