"""Tokens for programs, and share links to one job."""

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
    all: Annotated[bool, Query(description="tokens of all users; for administrators")] = False,
) -> TokenPage:
    """List your tokens, sessions and share links, newest first, without the tokens themselves."""
    return await control.tokens.list_tokens(who, all=all)


@router.post("/tokens", status_code=201, responses=problem_responses(404))
async def create(body: NewToken, control: Control, who: Who) -> TokenView:
    """Create a token. It is in this response, as `token`, and nowhere else."""
    return await control.tokens.create(who, body)


@router.delete("/tokens/{token}", responses=problem_responses(404))
async def revoke(token: TokenRef, control: Control, who: Who) -> RevokedView:
    """Revoke a token at once. Idempotent."""
    return await control.tokens.revoke(who, token)


@router.post("/jobs/{id}/share", status_code=201, responses=problem_responses(404, 409))
async def share(
    id: JobRef,
    control: Control,
    who: Who,
    request: Request,
    server: Server,
    body: Annotated[NewShareLink, Body()] = _ONE_DAY,
) -> TokenView:
    """Create a token with which anyone can read this job, and nothing else, until it expires or is revoked.

    `url` is a link that logs a browser in with it.
    """
    created = await control.jobs.share(who, id, name=body.name, seconds=body.hours * 3600)
    return created.model_copy(update={"url": f"{server_url(request, server.public_url)}/login?code={created.token}"})
