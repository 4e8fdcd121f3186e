"""Artifacts: the files a job wrote into its output folder."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from crucible.core.views.records import ArtifactPage
from crucible.server.context import Control, JobRef, Who
from crucible.server.http.problems import problem_responses
from crucible.server.http.stored_files import RANGE_STATUSES, FileResponse, send_file

router = APIRouter(prefix="/api/v1/jobs", tags=["artifacts"])


@router.get("/{id}/artifacts", responses=problem_responses(404, 409))
async def list_artifacts(id: JobRef, control: Control, who: Who) -> ArtifactPage:
    """Path, size, SHA-256 and attempt of each file."""
    return await control.outputs.artifacts(who, id)


@router.head("/{id}/artifacts/{path:path}", include_in_schema=False)
@router.get(
    "/{id}/artifacts/{path:path}",
    response_class=FileResponse,
    responses=problem_responses(404, 409, 416, also=RANGE_STATUSES),
)
async def download(
    id: JobRef, path: Annotated[str, Path(max_length=4096)], request: Request, control: Control, who: Who
) -> Response:
    """The file. A broken download goes on with Range; If-Range makes sure it is still the same file."""
    return await send_file(request, control.store, await control.outputs.artifact(who, id, path), path)
