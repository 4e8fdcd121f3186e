"""The pages of the login, and the session cookie that it sets."""

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
    # With no-referrer, browsers would send `Origin: null` with our own forms, as with those of another site.
    "Referrer-Policy": "same-origin",
}


def html_page(
    body: str, onward: str | None = None, status: int = 200, title: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    """Return a page with this markup as its body. If `onward` is set, the page loads that path of this server next.

    A redirect would not do: a browser that came from another site sends no SameSite=Strict cookie with it.
    """
    refresh = f'<meta http-equiv="refresh" content="0;url={html.escape(onward)}">' if onward is not None else ""
    full_title = f"{html.escape(title)} - Crucible" if title else "Crucible"
    head = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{refresh}<title>{full_title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
    )
    return HTMLResponse(f"{head}<body><main>{body}</main></body></html>\n", status, {**HEADERS, **(headers or {})})


def login_form(provider: str | None, name: str = "", error: CrucibleError | None = None) -> str:
    """Return the login form as markup, with `provider`, a link to the OpenID provider, if there is one.

    `error` is that of the last attempt, with this `name`.
    """
    alert, invalid = "", ""
    if error is not None:
        alert = f'<div role="alert" id="refused">{error_html(error)}</div>'
        invalid = ' aria-invalid="true" aria-describedby="refused"'
    return f"""<h1>Log in to Crucible</h1>{alert}{provider or ""}
<form method="post" action="/login">
<label for="name">Name</label>
<input id="name" name="name" value="{html.escape(name)}" autocomplete="username" autocapitalize="none"
spellcheck="false" maxlength="{MAX_USER}" required{invalid}>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password"
maxlength="{LONGEST_PASSWORD}" required{invalid}>
<button>Log in</button>
</form>
<p>Without a password: <code>crucible login --link</code>, where you are logged in already, makes a link that logs a
browser in.</p>"""


def error_html(error: CrucibleError) -> str:
    """Return an error as markup."""
    return "".join(f"<p>{html.escape(part)}</p>" for part in (error.what, error.why, error.fix) if part)


def refusal_response(error: CrucibleError, request: Request, body: str | None = None) -> Response:
    """Return the response to a refused login: a page for browsers, a problem for programs."""
    if "text/html" not in request.headers.get("accept", ""):
        return problem_response(error, request_id(request))
    markup = f'{error_html(error)}<p><a href="/login">Log in</a></p>' if body is None else body
    return html_page(markup, status=error.http_status, title="Not logged in", headers=error_headers(error))


def set_session_cookie(response: Response, session: TokenView, server: ServerInfo) -> None:
    """Set the session cookie: for this site only, hidden from scripts, and only over TLS if clients use it."""
    response.set_cookie(
        COOKIE,
        str(session.token),
        max_age=SESSION_SECONDS,
        path="/",
        httponly=True,
        samesite="strict",
        secure=server.secure,
    )
