"""Error responses as application/problem+json (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketState

from crucible.core.errors import CrucibleError
from crucible.server.http.responses import to_json

MEDIA_TYPE = "application/problem+json"
BAD_INPUT_CLOSE, TROUBLE_CLOSE = 1008, 1011
MAX_REASON = 123
BARE = frozenset({"204", "304"})
"""Statuses of responses without a body."""
SAME_KEY = MappingProxyType({200: "The job that this key created before"})
ENDED = MappingProxyType({200: "The job had ended already"})


def request_id(connection: HTTPConnection) -> str:
    return str(connection.scope.get("crucible.request_id", ""))


def problem_response(error: CrucibleError, request: str, headers: dict[str, str] | None = None) -> Response:
    """Return the problem response for an error."""
    headers = {**error_headers(error), **(headers or {})}
    return Response(to_json(problem_members(error, request)), error.http_status, headers, media_type=MEDIA_TYPE)


def problem_members(error: CrucibleError, request: str) -> dict[str, object]:
    """Return the members of the problem. An error's `data` adds members, and never replaces the standard ones."""
    status = error.http_status
    return {
        **{name: value for name, value in error.data.items() if value is not None},
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": error.what,
        "code": error.code,
        "why": error.why,
        "fix": error.fix,
        "request_id": request,
    }


def problem_responses(
    *statuses: int, also: Mapping[int, str] = MappingProxyType({})
) -> dict[int | str, dict[str, Any]]:
    """Return the problems a route may answer with, for its OpenAPI entry.

    `also` describes further statuses of success; `add_content` gives them the content of the route's own response.
    """
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    responses: dict[int | str, dict[str, Any]] = {status: {"description": when} for status, when in also.items()}
    for status in sorted(statuses):
        responses[status] = {"description": HTTPStatus(status).phrase, "content": content}
    return responses


def add_content(responses: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the responses of an OpenAPI entry, with the content of the first, the route's own, where one has none."""
    own = next(iter(responses.values())).get("content")
    return {
        status: response if own is None or "content" in response or status in BARE else {**response, "content": own}
        for status, response in responses.items()
    }


async def respond_with_error(connection: HTTPConnection, error: CrucibleError) -> Response | None:
    """Return the response to a request. A socket gets None: it is refused, or closed with the reason once accepted."""
    response = problem_response(error, request_id(connection))
    if not isinstance(connection, WebSocket):
        return response
    if connection.application_state is WebSocketState.CONNECTED:
        await connection.close(close_code(error), close_reason(error))
    elif connection.application_state is WebSocketState.CONNECTING:
        await connection.send_denial_response(response)
    return None


def close_code(error: CrucibleError) -> int:
    return BAD_INPUT_CLOSE if error.http_status < HTTPStatus.INTERNAL_SERVER_ERROR else TROUBLE_CLOSE


def close_reason(error: CrucibleError) -> str:
    """Return what happened, cut to the 123 bytes that a close frame has room for."""
    return error.what.encode()[:MAX_REASON].decode(errors="ignore")


def error_headers(error: CrucibleError) -> dict[str, str]:
    """Return the headers that HTTP requires with the error's status."""
    if error.http_status == HTTPStatus.METHOD_NOT_ALLOWED:
        return {"Allow": str(error.data.get("allow", ""))}
    if error.http_status == HTTPStatus.UNAUTHORIZED:
        return {"WWW-Authenticate": "Bearer"}
    if error.http_status == HTTPStatus.TOO_MANY_REQUESTS:
        return {"Retry-After": str(error.data.get("retry_after", 1))}
    if error.http_status == HTTPStatus.SERVICE_UNAVAILABLE:
        return {"Retry-After": "1"}
    return {}
