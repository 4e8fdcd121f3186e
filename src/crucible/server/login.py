"""Logging in: a link that works once, or name and password, become a session."""

from __future__ import annotations

import html
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from crucible.core.people import LONGEST_PASSWORD, MAX_USER, SESSION_SECONDS
from crucible.server.answers import answer
from crucible.server.auth import COOKIE
from crucible.server.context import About, People, Server, Who
from crucible.server.limits import PLAIN, whole
from crucible.server.people_ports import View
from crucible.server.problems import documented

MAX_CODE, MAX_FORM = 200, 1000

router = APIRouter(tags=["login"])

Code = Annotated[str, Field(min_length=1, max_length=MAX_CODE)]


class Credentials(BaseModel):
    """Name and password, or the code of a login link."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: Annotated[str | None, Field(min_length=1, max_length=MAX_USER, pattern=PLAIN)] = None
    password: Annotated[str | None, Field(min_length=1, max_length=LONGEST_PASSWORD)] = None
    code: Code | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Credentials:
        named = self.name is not None and self.password is not None
        if named == (self.code is not None):
            raise ValueError("give name and password, or the code of a login link")
        return self


@router.post("/api/v1/login", responses=documented(429))
async def login(wish: Credentials, people: People, server: Server) -> Response:
    """A session, as a token in the answer and as a cookie for a browser."""
    if wish.code is not None:
        session = await people.door.redeem(wish.code)
    else:
        session = await people.door.login(str(wish.name), str(wish.password))
    return _remembered(answer(session), session, server)


@router.post("/api/v1/login/links", status_code=201)
async def link(people: People, who: Who, request: Request) -> Response:
    """A link that logs a browser in, once, within five minutes."""
    made = await people.door.link(who)
    url = f"{str(request.base_url).rstrip('/')}/login?code={made['token']}"
    return answer({"url": url, "expires_at": made["expires_at"]}, 201)


@router.post("/api/v1/logout", status_code=204)
async def logout(people: People, who: Who) -> Response:
    """End this session; a token stays good until it is revoked."""
    await people.door.logout(who)
    gone = Response(status_code=204)
    gone.delete_cookie(COOKIE, path="/")
    return gone


@router.get("/login", response_class=HTMLResponse)
async def page(code: Annotated[str, Query(min_length=1, max_length=MAX_CODE)]) -> Response:
    """Asks to be confirmed: a link that is only looked at, by a program or a preview, is not used up."""
    button = f"""<form method="post" action="/login"><input type="hidden" name="code" value="{html.escape(code)}">
<button>Log in to Crucible</button></form>"""
    return _html(button)


@router.post("/login", response_class=HTMLResponse, responses=documented(413))
async def use(people: People, request: Request, server: Server) -> Response:
    """What the button of the page sends."""
    form = parse_qs((await whole(request, MAX_FORM, "The form")).decode("ascii", "replace"))
    session = await people.door.redeem(form.get("code", [""])[0])
    return _remembered(_html(f"<p>You are logged in as {html.escape(str(session['user']))}.</p>"), session, server)


def _remembered(response: Response, session: View, server: About) -> Response:
    """With the session's cookie: for this site alone, out of reach of scripts, and encrypted wherever we are."""
    response.set_cookie(
        COOKIE,
        str(session["token"]),
        max_age=SESSION_SECONDS,
        path="/",
        httponly=True,
        samesite="strict",
        secure=server.secure,
    )
    return response


def _html(body: str) -> Response:
    return HTMLResponse(f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Crucible</title>{body}</html>\n')
