"""Hooks of projects: URLs that get job events. For admins of the project."""

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
    """The project's hooks, with how each does; never their secrets."""
    return await control.hooks.list_hooks(who, project)


@router.post("", status_code=201, responses=problem_responses(404, 503))
async def add(project: ProjectName, wish: NewHook, control: Control, who: Who) -> HookView:
    """A new hook. The secret that its messages are signed with is in this answer, as `secret`, and nowhere else."""
    return await control.hooks.add(who, project, wish.url, events=wish.events, format=wish.format, secret=_new_secret())


@router.get("/{hook}", responses=problem_responses(404, 409))
async def show(project: ProjectName, hook: HookRef, control: Control, who: Who) -> HookView:
    """Show one hook: its events and how its deliveries went."""
    return await control.hooks.get(who, project, hook)


@router.patch("/{hook}", responses=problem_responses(404, 409))
async def change(project: ProjectName, hook: HookRef, wish: HookChange, control: Control, who: Who) -> HookView:
    """Change a hook's address or events; enable or disable it. Enabling one that waits for a retry retries at once."""
    return await control.hooks.change(who, project, hook, url=wish.url, events=wish.events, enabled=wish.enabled)


@router.delete("/{hook}", status_code=204, response_class=Response, responses=problem_responses(404, 409))
async def remove(project: ProjectName, hook: HookRef, control: Control, who: Who) -> None:
    """Remove a hook, its secret, and what is known of its deliveries."""
    await control.hooks.remove(who, project, hook)


@router.post("/{hook}/test", responses=problem_responses(404, 409, 503))
async def test(project: ProjectName, hook: HookRef, control: Control, who: Who) -> DeliveryView:
    """Send a `ping` now, also to one that is disabled, and say what the receiver answered."""
    return await control.hooks.test(who, project, hook)


@router.post("/{hook}/rotate", responses=problem_responses(404, 409, 503))
async def rotate(project: ProjectName, hook: HookRef, control: Control, who: Who) -> HookView:
    """A new secret, in this answer and nowhere else. For a day messages are signed with the old one too."""
    return await control.hooks.rotate(who, project, hook, _new_secret())


@router.get("/{hook}/deliveries", responses=problem_responses(404, 409))
async def deliveries(
    project: ProjectName,
    hook: HookRef,
    control: Control,
    who: Who,
    limit: Annotated[int, Query(ge=1, le=MOST_DELIVERIES)] = 50,
) -> DeliveryPage:
    """List the last delivery attempts, newest first; 100 are kept."""
    return await control.hooks.list_deliveries(who, project, hook, limit=limit)


def _new_secret() -> Secret:
    return signing_secret(secrets.token_bytes(KEY_BYTES))
