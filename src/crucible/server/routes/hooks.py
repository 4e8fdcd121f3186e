"""Webhooks of projects: URLs that receive job events; for admins of the project."""

from __future__ import annotations

import secrets
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from crucible.core.requests import HookChange, NewHook
from crucible.core.secret import Secret
from crucible.core.signing import KEY_BYTES, signing_secret
from crucible.core.views.hooks import DeliveryPage, DeliveryView, HookPage, HookView
from crucible.server.context import Control, Who
from crucible.server.http.problems import problem_responses
from crucible.server.routes.people import ProjectName

MOST_DELIVERIES = 100

router = APIRouter(prefix="/api/v1/projects/{project}/hooks", tags=["hooks"])

HookRef = Annotated[str, Path(min_length=1, max_length=64, description="the id of a hook, or its ending")]


@router.get("", responses=problem_responses(404))
async def list_hooks(project: ProjectName, control: Control, who: Who) -> HookPage:
    """List a project's hooks and the state of their deliveries, without their secrets."""
    return await control.hooks.list_hooks(who, project)


@router.post("", status_code=201, responses=problem_responses(404, 503))
async def add(project: ProjectName, body: NewHook, control: Control, who: Who) -> HookView:
    """Create a hook. The secret that signs its messages is in this response, as `secret`, and nowhere else."""
    return await control.hooks.add(who, project, body.url, events=body.events, format=body.format, secret=_new_secret())


@router.get("/{hook}", responses=problem_responses(404, 409))
async def show(project: ProjectName, hook: HookRef, control: Control, who: Who) -> HookView:
    """Return one hook: its events and the state of its deliveries."""
    return await control.hooks.get(who, project, hook)


@router.patch("/{hook}", responses=problem_responses(404, 409))
async def change(project: ProjectName, hook: HookRef, body: HookChange, control: Control, who: Who) -> HookView:
    """Change a hook's URL or events; enable or disable it. Enabling a hook that waits for a retry retries at once."""
    return await control.hooks.change(who, project, hook, url=body.url, events=body.events, enabled=body.enabled)


@router.delete("/{hook}", status_code=204, response_class=Response, responses=problem_responses(404, 409))
async def remove(project: ProjectName, hook: HookRef, control: Control, who: Who) -> None:
    """Delete a hook, its secret and its deliveries."""
    await control.hooks.remove(who, project, hook)


@router.post("/{hook}/test", responses=problem_responses(404, 409, 503))
async def test(project: ProjectName, hook: HookRef, control: Control, who: Who) -> DeliveryView:
    """Send a `ping` now, even to a disabled hook, and return the receiver's response."""
    return await control.hooks.test(who, project, hook)


@router.post("/{hook}/rotate", responses=problem_responses(404, 409, 503))
async def rotate(project: ProjectName, hook: HookRef, control: Control, who: Who) -> HookView:
    """Create a new secret; it is only in this response. For a day messages are signed with the old one too."""
    return await control.hooks.rotate(who, project, hook, _new_secret())


@router.get("/{hook}/deliveries", responses=problem_responses(404, 409))
async def deliveries(
    project: ProjectName,
    hook: HookRef,
    control: Control,
    who: Who,
    limit: Annotated[int, Query(ge=1, le=MOST_DELIVERIES)] = 50,
) -> DeliveryPage:
    """List the latest delivery attempts, newest first; 100 are kept."""
    return await control.hooks.list_deliveries(who, project, hook, limit=limit)


def _new_secret() -> Secret:
    return signing_secret(secrets.token_bytes(KEY_BYTES))
