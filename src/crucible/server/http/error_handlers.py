"""Exception handlers: turn every error into a problem response."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from crucible.core.errors import BadInput, CrucibleError, NotFound
from crucible.core.fields import EXTRA, suggest_field
from crucible.core.patterns import broken_rule
from crucible.server.http.problems import problem_response, request_id, respond_with_error
from crucible.wire.files.paths import UnsafePath

MAX_FIELDS = 20
SEND_JSON = "Send JSON in UTF-8, uncompressed, with `Content-Type: application/json`; GET /openapi.json describes it."

log = structlog.get_logger("crucible.server")


class NoSuchRoute(NotFound):
    code = "no_such_route"


class WrongMethod(BadInput):
    code = "wrong_method"
    http_status = 405


class Internal(CrucibleError):
    code = "internal"


class BrokenRequest(BadInput):
    code = "broken_request"
    http_status = 400


def add_error_handlers(app: FastAPI) -> None:
    """Make `app` answer every error with a problem response."""
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    app.router.default = _NoRoute(app.router.default)


class _NoRoute:
    """Default route: answers unknown paths, also those of sockets, which Starlette would close without a reason."""

    def __init__(self, not_found: ASGIApp) -> None:
        self._not_found = not_found

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self._not_found(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        await problem_response(_no_route(connection), request_id(connection))(scope, receive, send)


def bad_fields(errors: Sequence[Any], kind: object = None) -> BadInput:
    """Return one error for all validation errors of a model of type `kind`.

    The input itself is left out: it may contain secrets.
    """
    fields = [{"field": _path(e["loc"]), "message": _message(e)} for e in errors[:MAX_FIELDS]]
    first = fields[0]
    where = first["field"] or "request"
    if errors[0]["type"] == EXTRA and (suggestion := suggest_field(kind, _within(errors[0]["loc"]))):
        return BadInput(f"There is no field {where!r}.", fix=suggestion, errors=fields)
    return BadInput(
        f"The field {where!r} is invalid: {first['message']}.",
        why=f"{len(errors)} fields are invalid." if len(errors) > 1 else "",
        fix=f"Change {where!r} and send it again; GET /openapi.json says what is allowed.",
        errors=fields,
    )


async def _crucible_error(connection: HTTPConnection, error: Exception) -> Response | None:
    assert isinstance(error, CrucibleError)
    if error.http_status >= 500:
        log.warning("request failed", code=error.code, what=error.what, why=error.why, path=connection.url.path)
    return await respond_with_error(connection, error)


async def _validation_error(connection: HTTPConnection, error: Exception) -> Response | None:
    assert isinstance(error, RequestValidationError | WebSocketRequestValidationError)
    errors = error.errors()
    return await respond_with_error(
        connection, not_json_error(connection, errors) or bad_fields(errors, _body(connection))
    )


def _body(connection: HTTPConnection) -> object:
    """Return the model of the route's body, or None."""
    field = getattr(connection.scope.get("route"), "body_field", None)
    return None if field is None else field.field_info.annotation


async def _http_error(connection: HTTPConnection, error: Exception) -> Response | None:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, CrucibleError):
        # FastAPI wraps an error that is raised while it reads a body in a 400 of its own.
        return await _crucible_error(connection, error.__cause__)
    if error.status_code == HTTPStatus.BAD_REQUEST:
        return await respond_with_error(connection, unreadable_body(connection, error.__cause__))
    return await respond_with_error(connection, _from_http(error, connection))


async def _unsafe_path(connection: HTTPConnection, error: Exception) -> Response | None:
    fix = "Use a relative path without '..', with / between its parts."
    return await respond_with_error(connection, BadInput("This path cannot be used.", why=f"{error}.", fix=fix))


async def _client_left(connection: HTTPConnection, _disconnect: Exception) -> Response | None:
    return await respond_with_error(
        connection,
        BrokenRequest("The connection was closed before the body was complete.", fix="Send the request again."),
    )


def _from_http(error: HTTPException, connection: HTTPConnection) -> CrucibleError:
    if error.status_code == HTTPStatus.NOT_FOUND:
        return _no_route(connection)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = _methods(connection)
        what = f"{connection.scope['method']} is not possible at {connection.url.path}."
        return WrongMethod(what, fix=f"Use one of: {allowed}.", allow=allowed)
    if error.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
        return BrokenRequest(str(error.detail), fix="GET /openapi.json says what is allowed.")
    return Internal(str(error.detail))


def _no_route(connection: HTTPConnection) -> NoSuchRoute:
    return NoSuchRoute(f"There is nothing at {connection.url.path}.", fix="GET /openapi.json lists the routes.")


def _methods(connection: HTTPConnection) -> str:
    """Return the methods of all routes at this path; Starlette names only those of the first route."""
    at_path = (route for route in connection.app.routes if route.matches(connection.scope)[0] is not Match.NONE)
    return ", ".join(sorted({method for route in at_path for method in getattr(route, "methods", None) or ()}))


def _message(error: Any) -> str:
    """Return what is wrong with a field, without pydantic's prefix."""
    if error["type"] == EXTRA:
        return "there is no such field"
    rule = broken_rule(error)
    return f"it {rule}" if rule else str(error["msg"]).removeprefix("Value error, ")


def _path(loc: Sequence[object]) -> str:
    """Return `("body", "resources", "cpus")` as `resources.cpus`."""
    return ".".join(str(part) for part in _within(loc))


def _within(loc: Sequence[object]) -> Sequence[object]:
    return loc[1:] if len(loc) > 1 and loc[0] in _WHERE else loc


def unreadable_body(connection: HTTPConnection, cause: BaseException | None) -> BrokenRequest:
    """Return the error for a body that the framework could not read."""
    return BrokenRequest("The body cannot be read.", why=_encoded(connection) or _why(cause), fix=SEND_JSON)


def not_json_error(connection: HTTPConnection, errors: Sequence[Any]) -> BrokenRequest | None:
    """Return the error for a body that is not JSON or has another Content-Type; None if something else is wrong."""
    first = errors[0]
    if first["type"] == "json_invalid":
        where = f"{first['ctx']['error']}, at character {first['loc'][-1]}."
        return BrokenRequest("The body is not JSON.", why=_encoded(connection) or where, fix=SEND_JSON)
    if first["loc"] == ("body",) and isinstance(first.get("input"), bytes):
        content_type = connection.headers.get("content-type", "")
        why = f"Its Content-Type is {content_type[:100]!r}." if content_type else "It has no Content-Type."
        return BrokenRequest("The Content-Type is not JSON.", why=why, fix=SEND_JSON)
    return None


def _encoded(connection: HTTPConnection) -> str:
    encoding = connection.headers.get("content-encoding", "")
    return f"Its Content-Encoding {encoding[:100]!r} is not supported." if encoding not in ("", "identity") else ""


def _why(cause: BaseException | None) -> str:
    if isinstance(cause, UnicodeError):
        return "It is not UTF-8."
    if isinstance(cause, RecursionError):
        return "It is nested too deeply."
    return "A number in it has too many digits." if isinstance(cause, ValueError) else "It ended too early."


_WHERE = frozenset({"body", "query", "path", "header"})

# Any: each handler serves requests and sockets alike, which Starlette's types do not allow.
_HANDLERS: dict[type[Exception], Any] = {
    CrucibleError: _crucible_error,
    RequestValidationError: _validation_error,
    WebSocketRequestValidationError: _validation_error,
    HTTPException: _http_error,
    UnsafePath: _unsafe_path,
    ClientDisconnect: _client_left,
}
