"""The few pages that logging in needs, and the cookie that it leaves."""

from __future__ import annotations

import html
from collections.abc import Mapping

from starlette.responses import HTMLResponse, Response

from crucible.core.people import SESSION_SECONDS
from crucible.server.auth import COOKIE
from crucible.server.context import About


def page(body: str, onward: str | None = None, status: int = 200) -> Response:
    """`body` is markup. `onward` is a path of this server: the page itself goes there, and no redirect does, because a
    browser that came from another site does not send a SameSite=Strict cookie along with those."""
    there = f'<meta http-equiv="refresh" content="0;url={html.escape(onward)}">' if onward is not None else ""
    head = f'<!doctype html><html lang="en"><meta charset="utf-8">{there}<title>Crucible</title>'
    return HTMLResponse(f"{head}{body}</html>\n", status)


def remembered(response: Response, session: Mapping[str, object], server: About) -> Response:
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
