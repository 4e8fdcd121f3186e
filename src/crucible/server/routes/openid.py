"""Log in with the deployment's OpenID provider: redirect the browser there, and create a session when it returns."""

from __future__ import annotations

import html
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from crucible.core.errors import BadInput, CrucibleError
from crucible.core.patterns import CHALLENGE_PATTERN, ECHO_PATTERN
from crucible.core.people.openid import MAX_PATH, LoginResult, ProviderResponse, WaitingCommand
from crucible.server.context import Control, Server, ServerInfo
from crucible.server.http.problems import problem_responses
from crucible.server.routes.login_pages import html_page, refusal_response, set_session_cookie

PATH = "/api/v1/login/oidc"
AWAY_COOKIE = "crucible_signin"
"""Ties the provider's response to the browser that began the login. Lax: the provider's site sends the browser back.

Over TLS its name begins with `__Host-`, so that no sibling domain can set a cookie of this name."""
AWAY_SECONDS = 600
MAX_TEXT = 2000

router = APIRouter(prefix=PATH, tags=["login"])

ShortText = Annotated[str | None, Query(max_length=MAX_TEXT)]


@router.get("", status_code=303, response_class=RedirectResponse, responses=problem_responses(404, 503))
async def begin(
    control: Control,
    request: Request,
    server: Server,
    next: Annotated[
        str | None, Query(max_length=MAX_PATH, description="path of this server to open after the login")
    ] = None,
    port: Annotated[
        int | None, Query(ge=1024, le=65535, description="port of 127.0.0.1 on which a command listens")
    ] = None,
    challenge: Annotated[
        str | None, Query(pattern=CHALLENGE_PATTERN, description="the command's PKCE challenge (S256)")
    ] = None,
    state: Annotated[str | None, Query(pattern=ECHO_PATTERN, description="returned to the command unchanged")] = None,
) -> Response:
    """Redirect a browser to the provider. With `port`, `challenge` and `state` a waiting command gets the session."""
    try:
        command = _command(port, challenge, state)
        begun = await control.login.openid.begin(_redirect_uri(request, server), path=next, command=command)
    except CrucibleError as error:
        return refusal_response(error, request)
    away = RedirectResponse(begun.url, 303)
    away.set_cookie(
        _cookie(server),
        begun.browser.reveal(),
        max_age=AWAY_SECONDS,
        path="/",
        httponly=True,
        samesite="lax",
        secure=server.secure,
    )
    return away


@router.get("/callback", response_class=HTMLResponse, responses=problem_responses(404, 503))
async def finish(
    control: Control,
    request: Request,
    server: Server,
    code: ShortText = None,
    state: ShortText = None,
    error: ShortText = None,
    iss: ShortText = None,
) -> Response:
    """Finish a login: the provider redirects the browser here. It works once, in the browser that began it."""
    answer = ProviderResponse(state, code, error, iss, request.cookies.get(_cookie(server)))
    try:
        landing = await control.login.openid.finish(answer)
    except CrucibleError as refused:
        response = refusal_response(refused, request)
    else:
        response = _landing_page(landing, server)
    response.delete_cookie(_cookie(server), path="/", secure=server.secure, httponly=True, samesite="lax")
    return response


def _cookie(server: ServerInfo) -> str:
    return f"__Host-{AWAY_COOKIE}" if server.secure else AWAY_COOKIE


def _command(port: int | None, challenge: str | None, state: str | None) -> WaitingCommand | None:
    if port is None and challenge is None and state is None:
        return None
    if port is None or challenge is None or state is None:
        raise BadInput("`port`, `challenge` and `state` go together.", fix="Use `crucible login`.", field="port")
    return WaitingCommand(port, challenge, state)


def _redirect_uri(request: Request, server: ServerInfo) -> str:
    """Return the redirect URI as registered at the provider: on the public URL, whatever the request's host."""
    base = server.public_url or str(request.base_url)
    return f"{base.rstrip('/')}{PATH}/callback"


def _landing_page(landing: LoginResult, server: ServerInfo) -> Response:
    name = html.escape(landing.user)
    if landing.handover is not None:
        # Ask for a click: another program on this computer may have sent the browser here.
        return html_page(
            f"<p>The command <code>crucible login</code> on this computer asks to be logged in as {name}. Go on only "
            f'if you started it yourself.</p><p><a href="{html.escape(landing.handover)}">Log the command in</a></p>'
        )
    assert landing.session is not None
    body = f"<p>You are logged in as {name}.</p>"
    if landing.path is not None:
        body += f'<p><a href="{html.escape(landing.path)}">Go on</a></p>'
    response = html_page(body, landing.path)
    set_session_cookie(response, landing.session, server)
    return response
