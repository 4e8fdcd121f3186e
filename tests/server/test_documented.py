"""What the OpenAPI document says of the routes that find, label and search jobs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.routing import Route, WebSocketRoute
from tests.client.request.test_job_request import patterns_in

from crucible.core.patterns import PATTERN_RULES
from crucible.server.api import ROUTERS
from crucible.wire.http import sessions as s

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
JOB = "/api/v1/jobs/{id}"
ALWAYS = {"401", "403", "422", "429", "500", "503", "507"}


@pytest.mark.parametrize(
    ("method", "path", "errors"),
    [
        ("get", "/api/v1/jobs", set()),
        ("post", "/api/v1/jobs/bulk", {"400", "409", "413"}),
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


def test_every_pattern_has_a_rule_in_words(document: Any) -> None:
    patterns = patterns_in(document)
    assert patterns
    assert patterns <= PATTERN_RULES.keys()


def test_a_spec_in_a_batch_is_that_of_a_submission(document: Any) -> None:
    schemas = document["components"]["schemas"]
    assert set(schemas["BatchItem"]["properties"]["spec"]["properties"]) == set(schemas["JobSpec"]["properties"])
    assert schemas["JobBatch"]["properties"]["jobs"]["maxItems"] == 500


def test_every_answer_with_a_body_says_its_type(document: Any) -> None:
    bare = {
        (method, status)
        for item in document["paths"].values()
        for method, operation in item.items()
        for status, told in operation["responses"].items()
        if "content" not in told
    }
    assert bare == {("head", "200"), ("delete", "204"), ("post", "204"), ("get", "303"), ("get", "304")}


@pytest.mark.parametrize(
    ("path", "media"),
    [
        (f"{JOB}/logs", "text/plain"),
        (f"{JOB}/artifacts/{{path}}", "application/octet-stream"),
        (f"{JOB}/checkpoints/{{checkpoint}}/content", "application/octet-stream"),
        ("/metrics", CONTENT_TYPE_LATEST),
    ],
)
def test_routes_that_send_no_json(document: Any, path: str, media: str) -> None:
    good = {
        status: told for status, told in document["paths"][path]["get"]["responses"].items() if status in ("200", "206")
    }
    assert [list(told["content"]) for told in good.values()] == [[media]] * len(good)


@pytest.mark.parametrize(
    ("method", "path", "status", "own"),
    [
        ("post", "/api/v1/jobs", "200", "201"),
        ("post", f"{JOB}/cancel", "200", "202"),
        ("put", "/api/v1/bundles/{sha256}", "200", "201"),
        ("put", "/api/v1/projects/{project}/secrets/{name}", "201", "200"),
        ("get", "/readyz", "503", "200"),
        ("get", f"{JOB}/artifacts/{{path}}", "206", "200"),
    ],
)
def test_another_status_has_the_same_content(document: Any, method: str, path: str, status: str, own: str) -> None:
    told = document["paths"][path][method]["responses"]
    assert told[status]["content"] == told[own]["content"]
    assert told[status]["description"] != told[own]["description"]


OPENINGS = [
    s.Command(("ls", "-l"), s.Size(24, 80), "xterm"),
    s.Command(),
    s.Connection(8080),
    s.Ports(),
]
ENDS = [
    s.Over(code=0),
    s.Over(signal=9, job_ended=True),
    s.Over(ports=(80, 81)),
    s.Over(problem=s.Problem("x", 404, "No.")),
]


def fits(document: Any, name: str, frame: dict[str, Any]) -> bool:
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    return Draft202012Validator(schema).is_valid(frame)


@pytest.mark.parametrize("wanted", OPENINGS)
def test_a_session_opens_as_documented(document: Any, wanted: s.Opening) -> None:
    frame = json.loads(s.open_frame(wanted)[1:])
    assert fits(document, "SessionOpening", frame)
    assert not fits(document, "SessionOpening", {**frame, "kind": "dance"})


@pytest.mark.parametrize("how", ENDS)
def test_a_session_ends_as_documented(document: Any, how: s.Over) -> None:
    frame = json.loads(s.over_frame(how)[1:])
    assert fits(document, "SessionOver", frame)
    assert not fits(document, "SessionOver", {**frame, "code": "none"})


def test_a_terminal_is_resized_as_documented(document: Any) -> None:
    assert fits(document, "SessionSize", json.loads(s.resize_frame(s.Size(50, 132))[1:]))


def test_from_where_the_events_of_all_jobs_go_on(document: Any) -> None:
    assert fits(document, "FeedCursor", {"after": 7})
    assert not fits(document, "FeedCursor", {"after": -1})


def as_pattern(path: str) -> str:
    """Return a pattern of the path in which anything may stand for a parameter: `/api/v1/jobs/last`."""
    parts = (r"[\w{}$.:-]+" if part.startswith("{") else re.escape(part) for part in path.strip("/").split("/"))
    return "".join(f"/{part}" for part in parts) + r"(?![\w/-])"


def is_on_page(path: str, page: str) -> bool:
    """Return whether the page has the path in full, or its end behind an ellipsis: `…/tags`."""
    if re.search(rf"(?<![\w/}}…]){as_pattern(path)}|\$URL{as_pattern(path)}", page):
        return True
    parts = path.strip("/").split("/")
    ends = ("/".join(parts[count:]) for count in range(1, len(parts)) if not all(p[0] == "{" for p in parts[count:]))
    return any(re.search(f"…{as_pattern(end)}", page) for end in ends)


def test_every_route_is_on_the_page_about_the_api() -> None:
    page = PAGE.read_text(encoding="utf-8")
    paths = {route.path for router in ROUTERS for route in router.routes if isinstance(route, Route | WebSocketRoute)}
    assert len(paths) > 80
    assert {path for path in paths if not is_on_page(path, page)} == set()
