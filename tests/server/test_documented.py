"""What the OpenAPI document says of the routes that find, label and search jobs."""

from __future__ import annotations

from typing import Any

import pytest

JOB = "/api/v1/jobs/{id}"
ALWAYS = {"401", "403", "422", "429", "500", "503", "507"}


@pytest.mark.parametrize(
    ("method", "path", "errors"),
    [
        ("get", "/api/v1/jobs", set()),
        ("post", "/api/v1/jobs/bulk", {"400", "413"}),
        ("post", "/api/v1/jobs/cancel", {"400", "413"}),
        ("patch", JOB, {"400", "404", "409", "413"}),
        ("get", f"{JOB}/tags", {"404", "409"}),
        ("post", f"{JOB}/tags", {"400", "404", "409", "413"}),
        ("get", f"{JOB}/notes", {"404", "409"}),
        ("post", f"{JOB}/notes", {"400", "404", "409", "413"}),
        ("delete", f"{JOB}/notes/{{note}}", {"404", "409"}),
        ("get", f"{JOB}/logs/search", {"404", "409", "504"}),
        ("get", "/api/v1/catalog", set()),
        ("get", "/api/v1/catalog/types/{type}", {"404"}),
        ("post", "/api/v1/catalog/audit", {"413", "504"}),
        ("post", "/api/v1/catalog/refresh", {"400", "413", "502", "504"}),
    ],
)
def test_every_error_is_documented_as_a_problem(document: Any, method: str, path: str, errors: set[str]) -> None:
    route = document["paths"][path][method]
    found = {status: told for status, told in route["responses"].items() if int(status) >= 400}
    assert set(found) == ALWAYS | errors
    for told in found.values():
        assert told["content"]["application/problem+json"]["schema"] == {"$ref": "#/components/schemas/Problem"}


def test_filters_are_parameters_with_words(document: Any) -> None:
    given = {p["name"]: p.get("description", "") for p in document["paths"]["/api/v1/jobs"]["get"]["parameters"]}
    filters = ("status", "active", "backend", "kind", "project", "name", "named", "tag", "text", "created_after")
    assert all(given[name] for name in filters)
    assert {"limit", "cursor", "created_before"} <= set(given)


def test_a_spec_in_a_batch_is_that_of_a_submission(document: Any) -> None:
    schemas = document["components"]["schemas"]
    assert set(schemas["Item"]["properties"]["spec"]["properties"]) == set(schemas["JobSpec"]["properties"])
    assert schemas["Batch"]["properties"]["jobs"]["maxItems"] == 500
