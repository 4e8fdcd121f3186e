"""Bodies that cannot be read as JSON, each told with what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import HTTPConnection

from crucible.core.errors import BadInput

JSON = "Send JSON in UTF-8, uncompressed, with `Content-Type: application/json`; GET /openapi.json says which."


class BrokenRequest(BadInput):
    code = "broken_request"
    http_status = 400


def unreadable(connection: HTTPConnection, cause: BaseException | None) -> BrokenRequest:
    """For a body that the framework gave up on."""
    return BrokenRequest("The body cannot be read.", why=_encoded(connection) or _why(cause), fix=JSON)


def not_json(connection: HTTPConnection, errors: Sequence[Any]) -> BrokenRequest | None:
    """For a body that is no JSON, or does not say that it is; None where something else is wrong."""
    first = errors[0]
    if first["type"] == "json_invalid":
        where = f"{first['ctx']['error']}, at character {first['loc'][-1]}."
        return BrokenRequest("The body is not JSON.", why=_encoded(connection) or where, fix=JSON)
    if first["loc"] == ("body",) and isinstance(first.get("input"), bytes):
        said = connection.headers.get("content-type", "")
        why = f"Its Content-Type is {said[:100]!r}." if said else "It has no Content-Type."
        return BrokenRequest("The body does not say that it is JSON.", why=why, fix=JSON)
    return None


def _encoded(connection: HTTPConnection) -> str:
    said = connection.headers.get("content-encoding", "")
    return f"Its Content-Encoding is {said[:100]!r}, and none is taken." if said not in ("", "identity") else ""


def _why(cause: BaseException | None) -> str:
    if isinstance(cause, UnicodeError):
        return "It is not UTF-8."
    if isinstance(cause, RecursionError):
        return "It is nested too deeply."
    return "A number in it has too many digits." if isinstance(cause, ValueError) else "It ended too early."
