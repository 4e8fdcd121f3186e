"""People: the caller, users, projects and their members, and the audit log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from crucible.core.people.identity import MAX_PROJECT, MAX_USER
from crucible.core.requests import Membership, NewProject, NewUser, UserChange
from crucible.core.views.frames import MAX_OFFSET
from crucible.core.views.people import (
    AuditPage,
    MemberPage,
    MemberView,
    MeView,
    ProjectPage,
    ProjectView,
    UserPage,
    UserView,
)
from crucible.server.context import Control, Who
from crucible.server.http.problems import problem_responses
from crucible.server.security.size_limits import PageSize

router = APIRouter(prefix="/api/v1", tags=["people"])

UserName = Annotated[str, Path(min_length=1, max_length=MAX_USER)]
ProjectName = Annotated[str, Path(min_length=1, max_length=MAX_PROJECT)]


@router.get("/me")
async def me(control: Control, who: Who) -> MeView:
    """Return who you are to this server, your projects, and what your token allows."""
    return await control.people.me(who)


@router.get("/users")
async def list_users(control: Control, who: Who) -> UserPage:
    """List all users with their projects; for administrators."""
    return await control.people.list_users(who)


@router.post("/users", status_code=201, responses=problem_responses(409))
async def add_user(body: NewUser, control: Control, who: Who) -> UserView:
    """Create a user. Without a password they can use tokens that an administrator creates for them."""
    return await control.people.add_user(who, body.name, admin=body.admin, password=body.password, email=body.email)


@router.patch("/users/{name}", responses=problem_responses(404, 409))
async def change_user(name: UserName, body: UserChange, control: Control, who: Who) -> UserView:
    """Change the fields that the body has. A new password ends the user's sessions and revokes their tokens.

    Changing your own password takes the old one. After a change of the e-mail address, the next OpenID login with that
    address links the user to its identity.
    """
    return await control.people.change_user(who, name, body)


@router.get("/projects")
async def list_projects(control: Control, who: Who) -> ProjectPage:
    """List the projects that you may see."""
    return await control.people.list_projects(who)


@router.post("/projects", status_code=201, responses=problem_responses(409))
async def add_project(body: NewProject, control: Control, who: Who) -> ProjectView:
    """Create a project without members; for administrators."""
    return await control.people.add_project(who, body.name, body.about)


@router.get("/projects/{project}/members", responses=problem_responses(404))
async def list_members(project: ProjectName, control: Control, who: Who) -> MemberPage:
    """List the members of a project with their roles."""
    return await control.people.list_members(who, project)


@router.put("/projects/{project}/members/{name}", responses=problem_responses(404))
async def set_member(project: ProjectName, name: UserName, body: Membership, control: Control, who: Who) -> MemberView:
    """Add a user to a project with this role, or change their role."""
    return await control.people.set_member(who, project, name, body.role)


@router.delete(
    "/projects/{project}/members/{name}", status_code=204, response_class=Response, responses=problem_responses(404)
)
async def remove_member(project: ProjectName, name: UserName, control: Control, who: Who) -> None:
    """Remove a user from a project. Their jobs stay with the project."""
    await control.people.remove_member(who, project, name)


@router.get("/audit", responses=problem_responses(404))
async def audit(
    control: Control,
    who: Who,
    project: Annotated[
        str | None, Query(min_length=1, max_length=MAX_PROJECT, description="only entries of this project")
    ] = None,
    before: Annotated[int | None, Query(ge=1, le=MAX_OFFSET, description="`next` of the previous page")] = None,
    limit: PageSize = 50,
) -> AuditPage:
    """Return one page of the audit log, newest first: all of it for administrators, a project's for its admins."""
    return await control.people.audit(who, project=project, before=before, limit=limit)
