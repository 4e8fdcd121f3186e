"""Logging in: a link that works once, name and password, or what a command was handed, become a session."""

from __future__ import annotations

import html
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from crucible.control import control_plane
from crucible.core.errors import BadInput, CrucibleError
from crucible.core.people.identity import LONGEST_PASSWORD, MAX_USER
from crucible.core.people.openid import VERIFIER_PATTERN
from crucible.core.requests import PLAIN
from crucible.core.views.people import LinkView, TokenView, WaysView
from crucible.server.context import Control, Server, Who
from crucible.server.http.problems import problem_responses
from crucible.server.routes.login_pages import html_page as _html
from crucible.server.routes.login_pages import login_form, refusal_response, set_session_cookie
from crucible.server.routes.openid import PATH as OPENID
from crucible.server.security.auth import COOKIE
from crucible.server.security.proxies import server_url
from crucible.server.security.size_limits import read_body

MAX_CODE = 200
MAX_FORM = 16 * 1024
"""Bytes: the longest password, in letters of four bytes each of which is written in three, and a name."""

router = APIRouter(tags=["login"])

Code = Annotated[str, Field(min_length=1, max_length=MAX_CODE)]


_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "application/x-www-form-urlencoded": {
                "schema": {
                    "type": "object",
                    "properties": {name: {"type": "string"} for name in ("name", "password", "code")},
                }
            }
        },
    }
}


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
async def ways(control: Control) -> WaysView:
    """How people log in here: `password`, and `oidc`, which is the provider's name or null."""
    return WaysView(oidc=control.login.provider)


@router.post("/api/v1/login", responses=problem_responses(404, 429))
async def login(wish: Credentials, control: Control, server: Server, response: Response) -> TokenView:
    """A session, as a token in the answer and as a cookie for a browser."""
    if wish.code is not None and wish.verifier is not None:
        session = await control.login.openid.fetch(wish.code, wish.verifier)
    elif wish.code is not None:
        session = await control.login.redeem(wish.code)
    else:
        session = await control.login.login(str(wish.name), str(wish.password))
    set_session_cookie(response, session, server)
    return session


@router.post("/api/v1/login/links", status_code=201)
async def link(control: Control, who: Who, request: Request, server: Server) -> LinkView:
    """A link that logs a browser in, once, within five minutes."""
    made = await control.login.create_link(who)
    url = f"{server_url(request, server.public_url)}/login?code={made.token}"
    return LinkView(url=url, expires_at=made.expires_at)


@router.post("/api/v1/logout", status_code=204, response_class=Response)
async def logout(control: Control, who: Who, response: Response) -> None:
    """End this session; a token stays good until it is revoked."""
    await control.login.logout(who)
    response.delete_cookie(COOKIE, path="/")


@router.get("/login", response_class=HTMLResponse)
async def page(
    control: Control, code: Annotated[str | None, Query(min_length=1, max_length=MAX_CODE)] = None
) -> Response:
    """A form for name and password, and the way to the OpenID provider where there is one.

    With the code of a link it asks to be confirmed: one that is only looked at, by a program or a preview, is not used
    up.
    """
    if code is None:
        return _html(login_form(_provider_link(control.login.provider)), title="Log in")
    button = f"""<h1>Log in to Crucible</h1>
<form method="post" action="/login"><input type="hidden" name="code" value="{html.escape(code)}">
<button>Log in to Crucible</button></form>"""
    return _html(button, title="Log in")


@router.post("/login", response_class=HTMLResponse, responses=problem_responses(413), openapi_extra=_FORM)
async def use(control: Control, request: Request, server: Server) -> Response:
    """Handle the forms of the login page: name and password, or the code of a link."""
    form = parse_qs((await read_body(request, MAX_FORM, "The form")).decode("ascii", "replace"))
    code, name, password = (form.get(field, [""])[0] for field in ("code", "name", "password"))
    try:
        session = await (control.login.redeem(code) if code else _by_password(control, name, password))
    except CrucibleError as error:
        again = None if code else login_form(_provider_link(control.login.provider), name[:MAX_USER], error)
        return refusal_response(error, request, again)
    response = _html(_welcome_html(session), title="Logged in")
    set_session_cookie(response, session, server)
    return response


def _welcome_html(session: TokenView) -> str:
    user = html.escape(session.user)
    if session.job is None:
        return f"<p>You are logged in as {user}.</p>"
    shown = html.escape(session.job)
    return f'<p>{user} lets you look at <a href="/api/v1/jobs/{shown}">{shown}</a>, and at nothing else.</p>'


async def _by_password(control: control_plane.ControlPlane, name: str, password: str) -> TokenView:
    try:
        given = Credentials(name=name.strip(), password=password)
    except ValidationError:
        raise BadInput(
            "Name and password are both needed.",
            why=f"A name has 1 to {MAX_USER} characters, a password 1 to {LONGEST_PASSWORD}.",
            fix="Fill in both.",
        ) from None
    return await control.login.login(str(given.name), str(given.password))


def _provider_link(provider: str | None) -> str | None:
    return None if provider is None else f'<p><a href="{OPENID}">Log in with {html.escape(provider)}</a></p>'
