"""Problems: the response to every failed request (RFC 9457), and errors shown inside other responses."""

from crucible.core.views.base import View


class Problem(View):
    """An error: what happened, why, and the command or setting that fixes it. Further fields are its own data."""

    type: str = "about:blank"
    title: str = ""
    status: int = 500
    detail: str = ""
    code: str = "error"
    why: str = ""
    fix: str = ""
    request_id: str = ""


class ErrorView(View):
    """An error that a response shows: what happened, why, and what fixes it."""

    what: str = ""
    why: str = ""
    fix: str = ""
