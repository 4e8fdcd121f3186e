"""Logging in: a link that works once, name and password, or what a command was handed, become a session."""

from __future__ import annotations

import html
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from crucible.core.openid import VERIFIER_PATTERN
from crucible.core.people import LONGEST_PASSWORD, MAX_USER
from crucible.server.answers import answer
from crucible.server.auth import COOKIE
from crucible.server.context import People, Server, Who
from crucible.server.limits import PLAIN, whole
from crucible.server.openid import PATH as OPENID
from crucible.server.pages import page as _html
from crucible.server.pages import remembered
from crucible.server.problems import documented
from crucible.server.proxies import own_address

MAX_CODE, MAX_FORM = 200, 1000

router = APIRouter(tags=["login"])

Code = Annotated[str, Field(min_length=1, max_length=MAX_CODE)]


class Credentials(BaseModel):
    """Name and password; or the code of a login link; or the code that a command was handed, with its verifier."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: Annotated[str | None, Field(min_length=1, max_length=MAX_USER, pattern=PLAIN)] = None
    password: Annotated[str | None, Field(min_length=1, max_length=LONGEST_PASSWORD)] = None
    code: Code | None = None
    verifier: Annotated[str | None, Field(pattern=VERIFIER_PATTERN)] = None

    @model_validator(mode="after")
    def _one_way(self) -> Credentials:
        named = self.name is not None and self.password is not None
        if named == (self.code is not None) or (self.verifier is not None and self.code is None):
            raise ValueError("give name and password, or a code")
        return self


@router.get("/api/v1/login")
async def ways(people: People) -> Response:
    """How people log in here: `password`, and `oidc`, which is the provider's name or null."""
    return answer({"password": True, "oidc": people.door.provider})


@router.post("/api/v1/login", responses=documented(404, 429))
async def login(wish: Credentials, people: People, server: Server) -> Response:
    """A session, as a token in the answer and as a cookie for a browser."""
    if wish.code is not None and wish.verifier is not None:
        session = await people.door.entrance.fetch(wish.code, wish.verifier)
    elif wish.code is not None:
        session = await people.door.redeem(wish.code)
    else:
        session = await people.door.login(str(wish.name), str(wish.password))
    return remembered(answer(session), session, server)


@router.post("/api/v1/login/links", status_code=201)
async def link(people: People, who: Who, request: Request, server: Server) -> Response:
    """A link that logs a browser in, once, within five minutes."""
    made = await people.door.link(who)
    url = f"{own_address(request, server.public_url)}/login?code={made['token']}"
    return answer({"url": url, "expires_at": made["expires_at"]}, 201)


@router.post("/api/v1/logout", status_code=204)
async def logout(people: People, who: Who) -> Response:
    """End this session; a token stays good until it is revoked."""
    await people.door.logout(who)
    gone = Response(status_code=204)
    gone.delete_cookie(COOKIE, path="/")
    return gone


@router.get("/login", response_class=HTMLResponse)
async def page(
    people: People, code: Annotated[str | None, Query(min_length=1, max_length=MAX_CODE)] = None
) -> Response:
    """Asks to be confirmed: a link that is only looked at, by a program or a preview, is not used up.

    Without a code it leads to the OpenID provider, where there is one.
    """
    if code is None:
        return _html(_ways(people.door.provider))
    button = f"""<form method="post" action="/login"><input type="hidden" name="code" value="{html.escape(code)}">
<button>Log in to Crucible</button></form>"""
    return _html(button)


@router.post("/login", response_class=HTMLResponse, responses=documented(413))
async def use(people: People, request: Request, server: Server) -> Response:
    """What the button of the page sends."""
    form = parse_qs((await whole(request, MAX_FORM, "The form")).decode("ascii", "replace"))
    session = await people.door.redeem(form.get("code", [""])[0])
    return remembered(_html(f"<p>You are logged in as {html.escape(str(session['user']))}.</p>"), session, server)


def _ways(provider: str | None) -> str:
    if provider is None:
        return "<p><code>crucible login --link</code> makes a link that logs a browser in.</p>"
    return f'<p><a href="{OPENID}">Log in with {html.escape(provider)}</a></p>'
