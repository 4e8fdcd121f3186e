"""Secrets of projects: set, list by name, remove, rotate the keys. No response ever contains a value."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from crucible.core.people.project_secrets import MAX_SECRET_NAME
from crucible.core.requests import NewSecretValue
from crucible.core.secret import Secret
from crucible.core.views.people import RotationView, SecretPage, SecretView
from crucible.server.context import Control, Who
from crucible.server.http.problems import problem_responses
from crucible.server.routes.people import ProjectName

router = APIRouter(prefix="/api/v1", tags=["secrets"])

SecretName = Annotated[str, Path(min_length=1, max_length=MAX_SECRET_NAME)]


@router.get("/projects/{project}/secrets", responses=problem_responses(404))
async def list_secrets(project: ProjectName, control: Control, who: Who) -> SecretPage:
    """List the names of a project's secrets, and when and by whom they were set; for users who may use them."""
    return await control.secrets.list_secrets(who, project)


@router.put(
    "/projects/{project}/secrets/{name}", responses=problem_responses(404, 503, also={201: "The secret is new"})
)
async def set_secret(
    project: ProjectName, name: SecretName, body: NewSecretValue, control: Control, who: Who, response: Response
) -> SecretView:
    """Create a secret or replace its value. Jobs that start from now on get it. For admins of the project."""
    view, created = await control.secrets.set(who, project, name, Secret(body.value))
    response.status_code = 201 if created else 200
    return view


@router.delete(
    "/projects/{project}/secrets/{name}", status_code=204, response_class=Response, responses=problem_responses(404)
)
async def remove_secret(project: ProjectName, name: SecretName, control: Control, who: Who) -> None:
    """Delete a secret. Running jobs keep the value they got; other jobs that name the secret cannot start."""
    await control.secrets.remove(who, project, name)


@router.post("/secrets/rotate", responses=problem_responses(409, 503))
async def rotate(control: Control, who: Who) -> RotationView:
    """Re-encrypt every secret with a new key, and delete the old keys; for administrators."""
    return await control.secrets.rotate(who)
