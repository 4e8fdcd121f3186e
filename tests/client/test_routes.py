"""The client's table of routes beside the server's own document."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.routing import WebSocketRoute as ServerWebSocketRoute
from tests.server.openapi_contract import JSON, document

from crucible.client.api import routes
from crucible.client.api.resource import path_of
from crucible.client.api.routes import RawRoute, Route, WebSocketRoute
from crucible.server.api import ROUTERS

TABLE = {name: row for name, row in vars(routes).items() if isinstance(row, Route | RawRoute)}
SOCKET = "WEBSOCKET"
NOT_CALLED = frozenset(
    {
        ("GET", "/api/v1/events"),  # for the page and for programs that follow all jobs
        (SOCKET, "/api/v1/stream"),
        ("GET", "/api/v1/tiers"),  # the client has the same table
        ("GET", "/api/v1/schema/job"),
        ("GET", "/api/v1/schema/job-file"),
        ("GET", "/metrics"),  # for Prometheus
        # Pages and redirects of a browser
        ("GET", "/login"),
        ("POST", "/login"),
        ("GET", "/api/v1/login/oidc/callback"),
        # Training jobs of programs that were written for the older documents; ours use /orchestrate
        ("POST", "/api/v1/training"),
        ("POST", "/api/v1/training/create"),
        ("GET", "/api/v1/training/*"),
        ("POST", "/api/v1/training/*/resume"),
        ("POST", "/api/v1/training/*/cancel"),
        ("GET", "/api/v1/training/*/logs"),
        ("GET", "/api/v1/training/*/metrics"),
        (SOCKET, "/api/v1/training/*/stream"),
    }
)
"""Routes of the server that have no row on purpose."""


def operation(row: Route[Any] | RawRoute) -> Any:
    """Return what the document says of the route; names of path parameters are the server's own there."""
    paths = {path.replace("{", "<").split("<")[0] + shape(path): item for path, item in document()["paths"].items()}
    return paths[row.path.split("{")[0] + shape(row.path)][row.method.lower()]


def shape(path: str) -> str:
    return "/".join("*" if part.startswith("{") else part for part in path.split("/"))


@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_route_is_one_of_the_server(name: str) -> None:
    row = TABLE[name]
    responses = {status: response for status, response in operation(row)["responses"].items() if status < "300"}
    contents = [response.get("content", {}) for response in responses.values()]
    schemas = [content[JSON]["schema"] for content in contents if JSON in content]
    if isinstance(row, Route):
        assert schemas, "it answers JSON"
        assert all(row.answer.__name__ in str(schema) for schema in schemas)


def test_every_route_of_the_server_has_a_row_or_is_left_out_on_purpose() -> None:
    served = {(method.upper(), shape(path)) for path, item in document()["paths"].items() for method in item}
    served |= {(SOCKET, shape(r.path)) for one in ROUTERS for r in one.routes if isinstance(r, ServerWebSocketRoute)}
    called = {(row.method, shape(row.path)) for row in TABLE.values()}
    called |= {(SOCKET, shape(row.path)) for row in vars(routes).values() if isinstance(row, WebSocketRoute)}
    assert served - called == NOT_CALLED
    assert called <= served


def test_names_in_a_path_are_quoted() -> None:
    assert path_of(routes.JOB, job="a/b c") == "/api/v1/jobs/a%2Fb%20c"
    assert path_of(routes.ARTIFACT, job="j", path="runs/a b.pt") == "/api/v1/jobs/j/artifacts/runs/a%20b.pt"
