"""Problems: what every failed request answers with (RFC 9457)."""

from crucible.core.views.base import View


class Problem(View):
    """What went wrong, why, and the command or setting that fixes it. Further fields are the error's own data."""

    type: str = "about:blank"
    title: str = ""
    status: int = 500
    detail: str = ""
    code: str = "error"
    why: str = ""
    fix: str = ""
    request_id: str = ""
