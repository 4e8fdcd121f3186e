"""Converts between errors and their JSON: problem responses of the server, and error objects of its log."""

from __future__ import annotations

from collections.abc import Mapping

from crucible.core import errors
from crucible.core.errors import (
    BadInput,
    Conflict,
    CrucibleError,
    DiskFull,
    NotAllowed,
    NotFound,
    RefusedByPolicy,
    TimedOut,
    Trouble,
    UnknownName,
    Unreachable,
)

_STANDARD = frozenset({"type", "title", "status", "detail", "code", "what", "why", "fix", "instance"})
_BY_STATUS: dict[int, type[CrucibleError]] = {
    400: BadInput,
    401: NotAllowed,
    403: RefusedByPolicy,
    404: NotFound,
    405: Trouble,
    408: TimedOut,
    409: Conflict,
    410: NotFound,
    413: BadInput,
    422: BadInput,
    429: Unreachable,
    502: Unreachable,
    503: Unreachable,
    504: TimedOut,
    507: DiskFull,
}

_BY_CODE: dict[str, type[CrucibleError]] = {
    kind.code: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CrucibleError)
}
"""Errors that are defined outside core become the nearest class here, with their own code in `data`."""


def error_from(problem: Mapping[str, object], status: int = 500) -> CrucibleError:
    """Return the error that a problem response, or an error object of the server's log, describes."""
    code = str(problem.get("code", ""))
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status) or (BadInput if 400 <= status < 500 else Trouble)
    texts = (problem.get(key) for key in ("what", "detail", "title"))
    what = next(filter(None, texts), f"The server answered {status}.")
    data = {str(key): value for key, value in problem.items() if key not in _STANDARD}
    if kind is not _BY_CODE.get(code) and code:
        data["code"] = code
    return _make(kind, str(what), str(problem.get("why") or ""), str(problem.get("fix") or ""), data)


def error_object(error: CrucibleError) -> dict[str, object]:
    """Return the error as JSON for programs; the inverse of `error_from`."""
    code = error.data.get("code", error.code)
    parts = {"code": code, "what": error.what, "why": error.why, "fix": error.fix}
    return {**{key: value for key, value in error.data.items() if key not in parts}, **parts}


def _make(kind: type[CrucibleError], what: str, why: str, fix: str, data: dict[str, object]) -> CrucibleError:
    # Subclasses build their message from other arguments; the server has sent the message, so __init__ is bypassed.
    error = kind.__new__(kind)
    CrucibleError.__init__(error, what, why=why, fix=fix, **data)
    if isinstance(error, UnknownName):
        error.meant = str(data["meant"]) if data.get("meant") else None
    return error
