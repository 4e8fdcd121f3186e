"""Log in with a one-time link, with name and password, or with the code that a command received from the browser."""

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
from crucible.core.patterns import TEXT_PATTERN, VERIFIER_PATTERN
from crucible.core.people.identity import LONGEST_PASSWORD, MAX_USER, LoginMethod
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
"""Bytes of a login form: the longest password, with characters of 4 bytes, each escaped as `%XX`, and a name."""

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
    """Name and password, or the code of a login link, or the code that a command received, with its verifier."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: Annotated[str | None, Field(min_length=1, max_length=MAX_USER, pattern=TEXT_PATTERN)] = None
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
    """Return how users can log in: `password`, and `oidc` with the name of the OpenID provider or null."""
    return WaysView(oidc=control.login.provider)


@router.post("/api/v1/login", responses=problem_responses(404, 429))
async def login(body: Credentials, control: Control, server: Server, request: Request, response: Response) -> TokenView:
    """Log in. A program gets the session's token; a page (its requests have an Origin) gets a cookie instead."""
    via = LoginMethod.BROWSER if "origin" in request.headers else LoginMethod.SESSION
    if body.code is not None and body.verifier is not None:
        return await control.login.openid.fetch(body.code, body.verifier)
    if body.code is not None:
        session = await control.login.redeem(body.code, via)
    else:
        session = await control.login.login(str(body.name), str(body.password), via)
    if via is LoginMethod.SESSION:
        return session
    set_session_cookie(response, session, server)
    return session.model_copy(update={"token": None})


@router.post("/api/v1/login/links", status_code=201)
async def link(control: Control, who: Who, request: Request, server: Server) -> LinkView:
    """Create a link that logs a browser in once, within five minutes."""
    token = await control.login.create_link(who)
    url = f"{server_url(request, server.public_url)}/login?code={token.token}"
    return LinkView(url=url, expires_at=token.expires_at)


@router.post("/api/v1/logout", status_code=204, response_class=Response)
async def logout(control: Control, who: Who, response: Response) -> None:
    """End this session. A token stays valid until it is revoked."""
    await control.login.logout(who)
    response.delete_cookie(COOKIE, path="/")


@router.get("/login", response_class=HTMLResponse)
async def page(
    control: Control, code: Annotated[str | None, Query(min_length=1, max_length=MAX_CODE)] = None
) -> Response:
    """Return the login page: a form for name and password, and a link to the OpenID provider if there is one.

    With the `code` of a login link it asks for confirmation, so that link previews do not use up the link.
    """
    if code is None:
        return _html(login_form(_provider_link(control.login.provider)), title="Log in")
    button = f"""<h1>Log in to Crucible</h1>
<form method="post" action="/login"><input type="hidden" name="code" value="{html.escape(code)}">
<button>Log in to Crucible</button></form>"""
    return _html(button, title="Log in")


@router.post("/login", response_class=HTMLResponse, responses=problem_responses(413), openapi_extra=_FORM)
async def use(control: Control, request: Request, server: Server) -> Response:
    """Log in with a form of the login page: name and password, or the code of a login link."""
    form = parse_qs((await read_body(request, MAX_FORM, "The form")).decode("ascii", "replace"))
    code, name, password = (form.get(field, [""])[0] for field in ("code", "name", "password"))
    try:
        session = await (
            control.login.redeem(code, LoginMethod.BROWSER) if code else _by_password(control, name, password)
        )
    except CrucibleError as error:
        form_html = None if code else login_form(_provider_link(control.login.provider), name[:MAX_USER], error)
        return refusal_response(error, request, form_html)
    response = _html(_welcome_html(session), title="Logged in")
    set_session_cookie(response, session, server)
    return response


def _welcome_html(session: TokenView) -> str:
    user = html.escape(session.user)
    if session.job is None:
        return f"<p>You are logged in as {user}.</p>"
    job = html.escape(session.job)
    return f'<p>{user} lets you look at <a href="/api/v1/jobs/{job}">{job}</a>, and at nothing else.</p>'


async def _by_password(control: control_plane.ControlPlane, name: str, password: str) -> TokenView:
    try:
        credentials = Credentials(name=name.strip(), password=password)
    except ValidationError:
        raise BadInput(
            "Name and password are both needed.",
            why=f"A name has 1 to {MAX_USER} characters, a password 1 to {LONGEST_PASSWORD}.",
            fix="Fill in both.",
        ) from None
    return await control.login.login(str(credentials.name), str(credentials.password), LoginMethod.BROWSER)


def _provider_link(provider: str | None) -> str | None:
    return None if provider is None else f'<p><a href="{OPENID}">Log in with {html.escape(provider)}</a></p>'
