"""The client's table of routes beside the server's own document."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.promised import JSON, document

from crucible.client.api import routes
from crucible.client.api.resource import path_of
from crucible.client.api.routes import RawRoute, Route

TABLE = {name: row for name, row in vars(routes).items() if isinstance(row, Route | RawRoute)}


def operation(row: Route[Any] | RawRoute) -> Any:
    """Return what the document says of the route; names of path parameters are the server's own there."""
    paths = {path.replace("{", "<").split("<")[0] + shape(path): item for path, item in document()["paths"].items()}
    return paths[row.path.split("{")[0] + shape(row.path)][row.method.lower()]


def shape(path: str) -> str:
    return "/".join("*" if part.startswith("{") else part for part in path.split("/"))


@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_route_is_one_of_the_server(name: str) -> None:
    row = TABLE[name]
    responses = {status: told for status, told in operation(row)["responses"].items() if status < "300"}
    schemas = [told["content"][JSON]["schema"] for told in responses.values() if JSON in told.get("content", {})]
    if isinstance(row, Route):
        assert schemas, "it answers JSON"
        assert all(row.answer.__name__ in str(schema) for schema in schemas)


def test_names_in_a_path_are_quoted() -> None:
    assert path_of(routes.JOB, job="a/b c") == "/api/v1/jobs/a%2Fb%20c"
    assert path_of(routes.ARTIFACT, job="j", path="runs/a b.pt") == "/api/v1/jobs/j/artifacts/runs/a%20b.pt"
