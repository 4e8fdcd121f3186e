"""Build the public API from its routers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from starlette.responses import Response

from crucible.control.control_plane import ControlPlane
from crucible.core.views.frames import AnyFrame, Cursors, FeedCursor
from crucible.core.views.problems import Problem
from crucible.server.context import ServerInfo
from crucible.server.http import error_handlers, problems
from crucible.server.http.lingering_close import LingeringClose
from crucible.server.http.middleware import RejectNul, RequestMiddleware
from crucible.server.http.responses import json_response
from crucible.server.http.server_metrics import RequestTimer, ServerMetrics
from crucible.server.routes import (
    backends,
    bulk,
    bundles,
    catalog,
    checkpoints,
    hooks,
    jobs,
    labels,
    login,
    machines,
    maintenance,
    models,
    openid,
    orchestrate,
    outputs,
    people,
    prometheus,
    secrets,
    system,
    tokens,
    training,
)
from crucible.server.security import rate_limits
from crucible.server.security.auth import LOOPBACK, OPEN_PATHS, AuthMiddleware
from crucible.server.security.concurrency import ConcurrencyLimit, user_limits
from crucible.server.security.proxies import THIS_COMPUTER, Network, ProxyHeaders
from crucible.server.security.size_limits import MAX_BUNDLE, BodyLimit
from crucible.server.streams import sessions, sockets
from crucible.server.streams.coalesce import Coalescer
from crucible.server.streams.follow import StreamTiming
from crucible.wire.http import sessions as wire

ROUTERS = tuple(
    module.router
    for module in (
        bulk,
        jobs,
        outputs,
        labels,
        checkpoints,
        bundles,
        backends,
        catalog,
        models,
        machines,
        maintenance,
        people,
        tokens,
        secrets,
        hooks,
        login,
        openid,
        system,
        sockets,
        sessions,
        training,
        orchestrate,
        prometheus,
    )
)
SCHEMAS = "#/components/schemas/"
STREAMED = re.compile(r"/api/v1/bundles/[^/]*")
ANYWHERE = (401, 403, 422, 429, 500, 503, 507)
"""Statuses of problems that every operation may answer with."""
WITH_BODY = (400, 413)
"""Further statuses of operations that take a body."""


def build_api(
    control: ControlPlane,
    *,
    token: str,
    nonce: str,
    version: str,
    home: str,
    on_stop: Callable[[], None],
    agents_url: str = "",
    bundle_limit: int = MAX_BUNDLE,
    timing: StreamTiming | None = None,
    hosts: frozenset[str] = frozenset(),
    secure: bool = False,
    public_url: str = "",
    proxies: Sequence[Network] = THIS_COMPUTER,
) -> FastAPI:
    """Return the API over `control`. All but the open paths need a token or session; `token` is the owner's.

    `hosts`: host names it answers to besides loopback. `secure`: clients connect over TLS. `public_url`: its URL for
    other computers. `proxies`: networks of the proxies in front of it, if it does not serve TLS itself.
    """
    app = FastAPI(
        title="Crucible",
        version=version,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.control = control
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    app.state.about = ServerInfo(
        nonce, version, home, agents_url, on_stop, bundle_limit, started_at, secure, public_url
    )
    app.state.timing = timing or StreamTiming()
    app.state.meters = ServerMetrics()
    app.state.coalescer = Coalescer()
    error_handlers.add_error_handlers(app)
    app.add_middleware(BodyLimit, streams=STREAMED)
    app.add_middleware(RejectNul)
    app.add_middleware(ConcurrencyLimit, limits=user_limits)
    app.add_middleware(rate_limits.RateLimit, users=rate_limits.USERS, anonymous=rate_limits.ANONYMOUS)
    app.add_middleware(AuthMiddleware, token=token, identify=control.tokens.identify, hosts=LOOPBACK | hosts)
    if secure:
        app.add_middleware(ProxyHeaders, trusted=proxies)
    app.add_middleware(RequestTimer, meters=app.state.meters)
    app.add_middleware(LingeringClose)
    app.add_middleware(RequestMiddleware, version=version)
    # Not include_router: it wraps each router, so that no error handler sees which methods a path allows, and every
    # request is matched twice.
    app.router.routes.extend(route for router in ROUTERS for route in router.routes)
    _add_openapi(app)
    return app


def _add_openapi(app: FastAPI) -> None:
    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        app.openapi_schema = app.openapi_schema or describe(app)
        return json_response(app.openapi_schema)


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, with bearer authentication on all but the open paths and problems for errors."""
    document: dict[str, Any] = get_openapi(title=app.title, version=app.version, routes=app.routes)
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas["Problem"] = Problem.model_json_schema(mode="serialization")
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, item in document["paths"].items():
        for operation in item.values():
            operation["security"] = [] if path in OPEN_PATHS else [{"token": []}]
            operation["responses"] = _responses(operation)
    schemas.update(_socket_schemas())
    return document


def _socket_schemas() -> dict[str, Any]:
    """Return schemas of the frames on the sockets of jobs and sessions, which OpenAPI cannot describe."""
    frame = TypeAdapter(AnyFrame).json_schema(mode="serialization", ref_template=f"{SCHEMAS}{{model}}")
    cursors = {kind.__name__: kind.model_json_schema() for kind in (Cursors, FeedCursor)}
    return {**frame.pop("$defs"), "Frame": frame, **cursors, **_session_schemas()}


def _session_schemas() -> dict[str, Any]:
    """Return schemas of the JSON frames of a session: its opening, its end, and the terminal size."""
    kinds = TypeAdapter(tuple[wire.Command, wire.Connection, wire.Ports, wire.Over, wire.Size])
    schemas = kinds.json_schema(ref_template=f"{SCHEMAS}Session{{model}}")["$defs"]
    for name, kind in wire.OPENINGS.items():
        opening = schemas[kind.__name__]
        opening["properties"] = {"kind": {"const": name, "type": "string"}, **opening["properties"]}
        opening["required"] = ["kind", *opening.get("required", ())]
    openings = [{"$ref": f"{SCHEMAS}Session{kind.__name__}"} for kind in wire.OPENINGS.values()]
    return {**{f"Session{name}": schema for name, schema in schemas.items()}, "SessionOpening": {"oneOf": openings}}


def _responses(operation: dict[str, Any]) -> dict[str, Any]:
    """Return an operation's responses with the shared problems, and without FastAPI's own 422, which is never sent."""
    statuses = (*ANYWHERE, *WITH_BODY) if "requestBody" in operation else ANYWHERE
    own = problems.add_content({code: response for code, response in operation["responses"].items() if code != "422"})
    return {str(status): response for status, response in problems.problem_responses(*statuses).items()} | own
