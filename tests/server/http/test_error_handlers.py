"""Every failure has one form and says what to do."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest
import structlog
from structlog.testing import capture_logs
from tests.control.harness import add_row
from tests.server.app import TOKEN, App, broken_api
from tests.server.asgi import SocketClient
from tests.server.conftest import asking

from crucible.control.db import schema as t
from crucible.core.errors import DiskFull, NotFound, Unreachable
from crucible.server.http.error_handlers import bad_fields
from crucible.server.http.problems import close_reason, problem_response

MEMBERS = {"type", "title", "status", "detail", "code", "why", "fix", "request_id"}


def check(answer: httpx2.Response, status: int, code: str) -> dict[str, object]:
    body: dict[str, object] = answer.json()
    assert answer.status_code == body["status"] == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert body.keys() >= MEMBERS
    assert body["code"] == code
    assert body["request_id"] == answer.headers["X-Request-ID"]
    return body


async def test_an_error_of_control_keeps_its_parts_and_data(app: App, client: httpx2.AsyncClient) -> None:
    ending = (await app.harness.submit())[-6:]
    (row,) = await app.harness.rows(t.jobs)
    await app.harness.sql(add_row(t.jobs, **{**row, "id": f"job-{'1' * 20}{ending}"}))
    body = check(await client.get(f"/api/v1/jobs/{ending}"), 409, "conflict")
    assert body["detail"] == f"'{ending}' matches several jobs."
    assert body["fix"] == "Type more of the id."
    assert body["candidates"] == [f"job-{ending}", f"job-{ending}"]


async def test_data_never_replaces_the_usual_members() -> None:
    answer = problem_response(NotFound("gone", status=200, code="fine", request_id="other"), "req-1")
    body = json.loads(bytes(answer.body))
    assert (body["status"], body["code"], body["request_id"]) == (404, "not_found", "req-1")


async def test_wrong_fields_are_named_with_their_path(client: httpx2.AsyncClient) -> None:
    spec = {"command": ["true"], "resources": {"cpus": -1}, "env": {"1X": "hunter2"}, "colour": "red"}
    answer = await client.post("/api/v1/jobs", json=spec)
    body = check(answer, 422, "bad_input")
    errors = body["errors"]
    assert isinstance(errors, list)
    assert {error["field"] for error in errors} == {"resources.cpus", "env", "colour"}
    assert body["fix"]
    assert "hunter2" not in answer.text


@pytest.mark.parametrize(
    ("body", "field", "fix"),
    [
        ({"command": ["x"], "nmae": "a"}, "nmae", "Did you mean 'name'?"),
        ({"command": ["x"], "resources": {"cpu": 2}}, "resources.cpu", "Did you mean 'cpus'?"),
        ({"command": ["x"], "data": [{"name": "a", "source": "b", "q": 1}]}, "data.0.q", "There are name, source."),
        ({"command": ["x"], "keep": {"zzz": 1}}, "keep.zzz", "There are best, every, higher_is_better, latest."),
    ],
)
async def test_a_field_that_there_is_not_is_told_with_those_there_are(
    client: httpx2.AsyncClient, body: dict[str, object], field: str, fix: str
) -> None:
    said = (await client.post("/api/v1/jobs", json=body)).json()
    assert (said["status"], said["detail"], said["fix"]) == (422, f"There is no field {field!r}.", fix)
    assert said["errors"] == [{"field": field, "message": "there is no such field"}]


@pytest.mark.parametrize(
    ("name", "rule"),
    [("a/b", "must not contain slashes, backslashes or control characters"), ("", "at least 1 character")],
)
async def test_a_text_that_breaks_a_pattern_is_told_what_the_pattern_demands(
    client: httpx2.AsyncClient, name: str, rule: str
) -> None:
    said = (await client.post("/api/v1/jobs", json={"command": ["true"], "name": name})).json()
    assert rule in said["detail"]
    assert "pattern" not in said["detail"]
    assert rule in said["errors"][0]["message"]


async def test_many_wrong_fields_are_cut() -> None:
    errors = [{"type": "bad", "loc": ("body", "tags", number), "msg": "bad"} for number in range(500)]
    assert len(bad_fields(errors).data["errors"]) == 20  # type: ignore[arg-type]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'{"command": "\\ud800"}', b"[" * 100_000])
async def test_a_body_that_is_no_job_is_refused(app: App, client: httpx2.AsyncClient, body: bytes) -> None:
    answer = await client.post("/api/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()["fix"]
    assert await app.harness.rows(t.jobs) == []


async def test_an_unknown_route(client: httpx2.AsyncClient) -> None:
    body = check(await client.get("/api/v1/nothing"), 404, "no_such_route")
    assert body["detail"] == "There is nothing at /api/v1/nothing."


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("/api/v1/jobs", "GET, POST"), ("/api/v1/jobs/last", "GET, PATCH"), ("/api/v1/server/stop", "POST")],
)
async def test_a_wrong_method_says_which_are_right(client: httpx2.AsyncClient, path: str, allowed: str) -> None:
    answer = await client.delete(path)
    body = check(answer, 405, "wrong_method")
    assert (answer.headers["Allow"], body["fix"]) == (allowed, f"Use one of: {allowed}.")


async def test_an_unexpected_error_is_logged_under_the_request_id(app: App) -> None:
    async with asking(broken_api(app, ZeroDivisionError("a secret detail")), TOKEN) as client:
        with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
            answer = await client.get("/api/v1/jobs/abc")
    body = check(answer, 500, "internal")
    assert "a secret detail" not in answer.text
    assert "ZeroDivisionError" in str(body["why"])
    assert [line["request_id"] for line in lines] == [body["request_id"]]


@pytest.mark.parametrize(("error", "status"), [(DiskFull("full"), 507), (Unreachable("away"), 503)])
async def test_our_own_trouble_is_logged(app: App, error: Exception, status: int) -> None:
    async with asking(broken_api(app, error), TOKEN) as client:
        with capture_logs() as lines:
            answer = await client.get("/api/v1/jobs/abc")
    assert answer.status_code == status
    assert [line["log_level"] for line in lines] == ["warning"]


async def test_trouble_that_passes_says_when_to_come_back(app: App) -> None:
    async with asking(broken_api(app, Unreachable("away")), TOKEN) as client:
        assert (await client.get("/api/v1/jobs/abc")).headers["Retry-After"] == "1"


async def test_a_sane_request_id_is_kept(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/api/v1/jobs", headers={"X-Request-ID": "my-id.7"})
    assert answer.headers["X-Request-ID"] == "my-id.7"


@pytest.mark.parametrize("given", ["", "two words", "x" * 65, 'quo"te', "new%0aline"])
async def test_another_request_id_is_made(client: httpx2.AsyncClient, given: str) -> None:
    first = (await client.get("/api/v1/jobs", headers={"X-Request-ID": given})).headers["X-Request-ID"]
    second = (await client.get("/api/v1/jobs", headers={"X-Request-ID": given})).headers["X-Request-ID"]
    assert first.startswith("req-")
    assert first != second


async def test_answers_are_neither_guessed_at_nor_kept(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/api/v1/jobs")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"


async def test_a_socket_for_no_job_is_refused_with_the_problem(app: App) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with SocketClient(app.api, "/api/v1/jobs/nothing/stream", headers) as socket:
        status, body = await socket.refusal()
    assert (status, body["code"]) == (404, "not_found")


async def test_a_socket_with_a_wrong_cursor_is_refused_with_the_field(app: App) -> None:
    job = await app.harness.submit()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with SocketClient(app.api, f"/api/v1/jobs/{job}/stream?after=-1", headers) as socket:
        status, body = await socket.refusal()
    assert (status, body["errors"][0]["field"]) == (422, "after")


async def test_a_reader_that_leaves_in_the_middle_is_no_error_of_ours(app: App) -> None:
    sent: asyncio.Queue[dict[str, object]] = asyncio.Queue()
    messages = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])
    headers = {"host": "127.0.0.1", "authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    scope = {
        "type": "http",
        "method": "PUT",
        "path": f"/api/v1/bundles/{'a' * 64}",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }

    async def receive() -> dict[str, object]:
        return next(messages)

    with capture_logs() as lines:
        await app.api(scope, receive, sent.put)
    assert sent.get_nowait()["status"] == 400
    assert lines == []


def test_the_reason_of_a_close_fits() -> None:
    reason = close_reason(NotFound("ä" * 200))
    assert len(reason.encode()) <= 123
    assert set(reason) == {"ä"}
