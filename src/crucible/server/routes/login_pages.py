"""The few pages that logging in needs, and the cookie that it leaves."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from crucible.core.errors import CrucibleError
from crucible.core.people.identity import LONGEST_PASSWORD, MAX_USER, SESSION_SECONDS
from crucible.core.views.people import TokenView
from crucible.server.context import ServerInfo
from crucible.server.http.middleware import SECURITY_HEADERS
from crucible.server.http.problems import error_headers, problem_response, request_id
from crucible.server.security.auth import COOKIE

STYLE = """
:root { color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif; }
main { max-width: 22rem; margin: 12vh auto 0; padding: 0 1rem; }
h1 { font-size: 1.5rem; }
label, input, button { display: block; box-sizing: border-box; width: 100%; font: inherit; }
input { margin: 0 0 1rem; padding: .5rem; }
button { padding: .5rem; }
code { white-space: nowrap; }
[role=alert] { border-left: .25rem solid #c22; padding-left: .75rem; }
"""
_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": f"{SECURITY_HEADERS['Content-Security-Policy']}; style-src 'sha256-{_HASH}'",
    # With no-referrer a browser sends `Origin: null` along with our own forms, as it would with a stranger's.
    "Referrer-Policy": "same-origin",
}


def html_page(
    body: str, onward: str | None = None, status: int = 200, title: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    """`body` is markup. `onward` is a path of this server: the page itself goes there, and no redirect does, because a
    browser that came from another site does not send a SameSite=Strict cookie along with those."""
    there = f'<meta http-equiv="refresh" content="0;url={html.escape(onward)}">' if onward is not None else ""
    named = f"{html.escape(title)} - Crucible" if title else "Crucible"
    head = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{there}<title>{named}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
    )
    return HTMLResponse(f"{head}<body><main>{body}</main></body></html>\n", status, {**HEADERS, **(headers or {})})


def login_form(provider: str | None, name: str = "", error: CrucibleError | None = None) -> str:
    """Name and password, and the way to the OpenID provider where there is one, which `provider` is a link to.

    `error` is that of the last attempt, with this `name`.
    """
    said, bad = "", ""
    if error is not None:
        said = f'<div role="alert" id="refused">{error_html(error)}</div>'
        bad = ' aria-invalid="true" aria-describedby="refused"'
    return f"""<h1>Log in to Crucible</h1>{said}{provider or ""}
<form method="post" action="/login">
<label for="name">Name</label>
<input id="name" name="name" value="{html.escape(name)}" autocomplete="username" autocapitalize="none"
spellcheck="false" maxlength="{MAX_USER}" required{bad}>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password"
maxlength="{LONGEST_PASSWORD}" required{bad}>
<button>Log in</button>
</form>
<p>Without a password: <code>crucible login --link</code>, where you are logged in already, makes a link that logs a
browser in.</p>"""


def error_html(error: CrucibleError) -> str:
    """An error as markup, for a person."""
    return "".join(f"<p>{html.escape(part)}</p>" for part in (error.what, error.why, error.fix) if part)


def refusal_response(error: CrucibleError, request: Request, body: str | None = None) -> Response:
    """A refusal: a page for a person at a browser, a problem for programs."""
    if "text/html" not in request.headers.get("accept", ""):
        return problem_response(error, request_id(request))
    shown = f'{error_html(error)}<p><a href="/login">Log in</a></p>' if body is None else body
    return html_page(shown, status=error.http_status, title="Not logged in", headers=error_headers(error))


def set_session_cookie(response: Response, session: TokenView, server: ServerInfo) -> None:
    """Set the session's cookie: for this site alone, out of reach of scripts, and encrypted wherever we are."""
    response.set_cookie(
        COOKIE,
        str(session.token),
        max_age=SESSION_SECONDS,
        path="/",
        httponly=True,
        samesite="strict",
        secure=server.secure,
    )
