"""Secrets of projects: set, listed by name, removed. No answer ever holds a value."""

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
    """Names of a project's secrets, when and by whom they were set; for those who may use them."""
    return await control.secrets.list_secrets(who, project)


@router.put(
    "/projects/{project}/secrets/{name}", responses=problem_responses(404, 503, also={201: "it was not there before"})
)
async def set_secret(
    project: ProjectName, name: SecretName, wish: NewSecretValue, control: Control, who: Who, response: Response
) -> SecretView:
    """Set a secret, or give it a new value: jobs that start from now on get it. For admins of the project."""
    view, created = await control.secrets.set(who, project, name, Secret(wish.value))
    response.status_code = 201 if created else 200
    return view


@router.delete(
    "/projects/{project}/secrets/{name}", status_code=204, response_class=Response, responses=problem_responses(404)
)
async def remove_secret(project: ProjectName, name: SecretName, control: Control, who: Who) -> None:
    """Remove a secret. Jobs that run keep what they were given; those that name it do not start again."""
    await control.secrets.remove(who, project, name)


@router.post("/secrets/rotate", responses=problem_responses(409, 503))
async def rotate(control: Control, who: Who) -> RotationView:
    """Encrypt every secret again with a new key, and drop the old keys; for administrators."""
    return await control.secrets.rotate(who)
