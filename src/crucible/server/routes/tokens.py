"""Tokens for programs, and links that show one job."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Query
from starlette.requests import Request

from crucible.core.requests import NewShareLink, NewToken
from crucible.core.views.people import RevokedView, TokenPage, TokenView
from crucible.server.context import Control, JobRef, Server, Who
from crucible.server.http.problems import problem_responses
from crucible.server.security.proxies import server_url

router = APIRouter(prefix="/api/v1", tags=["tokens"])

TokenRef = Annotated[str, Path(min_length=1, max_length=64, description="the id of a token, or its ending")]


_ONE_DAY = NewShareLink()


@router.get("/tokens")
async def list_tokens(
    control: Control,
    who: Who,
    all: Annotated[bool, Query(description="of all users; for administrators")] = False,
) -> TokenPage:
    """Your tokens, sessions and share links, newest first; never the tokens themselves."""
    return await control.tokens.list_tokens(who, all=all)


@router.post("/tokens", status_code=201, responses=problem_responses(404))
async def create(wish: NewToken, control: Control, who: Who) -> TokenView:
    """A new token. It stands in this answer, as `token`, and nowhere else."""
    return await control.tokens.create(who, wish)


@router.delete("/tokens/{token}", responses=problem_responses(404))
async def revoke(token: TokenRef, control: Control, who: Who) -> RevokedView:
    """End a token at once; again is harmless."""
    return await control.tokens.revoke(who, token)


@router.post("/jobs/{id}/share", status_code=201, responses=problem_responses(404, 409))
async def share(
    id: JobRef,
    control: Control,
    who: Who,
    request: Request,
    server: Server,
    wish: Annotated[NewShareLink, Body()] = _ONE_DAY,
) -> TokenView:
    """A token with which anybody can look at this job, and at nothing else, until it expires or is revoked.

    `url` is a link that lets a browser in with it.
    """
    made = await control.jobs.share(who, id, name=wish.name, seconds=wish.hours * 3600)
    return made.model_copy(update={"url": f"{server_url(request, server.public_url)}/login?code={made.token}"})
