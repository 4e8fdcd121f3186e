"""Jobs over HTTP: submit, list, look at, cancel."""

from __future__ import annotations

import httpx2
import pytest
from tests.server.fake_control import JOB, FakeCheckpoint, FakeControl, FakeJob

from crucible.core.jobfilter import JobFilter

SPEC = {"command": ["{python}", "train.py"]}


async def test_a_submitted_job_is_created(http: httpx2.AsyncClient, control: FakeControl) -> None:
    answer = await http.post("/api/v1/jobs", json=SPEC)
    assert answer.status_code == 201
    assert answer.headers["Location"] == f"/api/v1/jobs/{answer.json()['id']}"
    [(spec, key)] = control.submitted
    assert spec.command == ("{python}", "train.py")
    assert key is None


async def test_the_same_key_gives_the_same_job(http: httpx2.AsyncClient, control: FakeControl) -> None:
    headers = {"Idempotency-Key": "k-1"}
    first = await http.post("/api/v1/jobs", json=SPEC, headers=headers)
    second = await http.post("/api/v1/jobs", json=SPEC, headers=headers)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]
    assert [key for _, key in control.submitted] == ["k-1", "k-1"]


async def test_the_same_key_for_another_job_is_a_conflict(http: httpx2.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k-1"}
    await http.post("/api/v1/jobs", json=SPEC, headers=headers)
    other = await http.post("/api/v1/jobs", json={"command": ["false"]}, headers=headers)
    assert other.status_code == 409


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 201, "é", "tab\there"])
async def test_a_key_that_is_not_visible_ascii_is_refused(
    http: httpx2.AsyncClient, control: FakeControl, key: str
) -> None:
    headers = {"Idempotency-Key": key.encode("latin-1")}
    answer = await http.post("/api/v1/jobs", json=SPEC, headers=headers)
    assert answer.status_code == 422
    assert answer.json()["field"] == "Idempotency-Key"
    assert control.submitted == []


async def test_the_longest_key_is_fine(http: httpx2.AsyncClient) -> None:
    answer = await http.post("/api/v1/jobs", json=SPEC, headers={"Idempotency-Key": "~" * 200})
    assert answer.status_code == 201


async def test_a_list_passes_its_filters(http: httpx2.AsyncClient, control: FakeControl) -> None:
    path = "/api/v1/jobs?status=queued&status=running,failed&active=true&limit=7&cursor=c"
    assert (await http.get(path)).json() == {"items": [], "next": None}
    wanted = JobFilter(status=["queued", "running", "failed"], active=True)
    assert control.asked == [{"wanted": wanted, "limit": 7, "cursor": "c"}]


async def test_a_list_takes_every_filter(http: httpx2.AsyncClient, control: FakeControl) -> None:
    query = "backend=local,ssh&kind=train&project=p&name=n*&named=N&tag=a&tag=b%3Dc,d&text=x%20y"
    times = "created_after=2026-01-01&created_before=1800000000"
    assert (await http.get(f"/api/v1/jobs?{query}&{times}")).status_code == 200
    [asked] = control.asked
    assert asked["wanted"] == JobFilter(
        backend=["local", "ssh"],
        kind=["train"],
        project=["p"],
        name="n*",
        named="N",
        tag=["a", "b=c,d"],
        text="x y",
        created_after="2026-01-01T00:00:00Z",
        created_before=1800000000,
    )


async def test_a_list_has_defaults(http: httpx2.AsyncClient, control: FakeControl) -> None:
    await http.get("/api/v1/jobs")
    assert control.asked == [{"wanted": JobFilter(), "limit": 50, "cursor": None}]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=501",
        "limit=x",
        "active=perhaps",
        "cursor=",
        "cursor=" + "c" * 201,
        "name=",
        "name=" + "n" * 201,
        "text=",
        "text=" + "t" * 201,
        "created_after=yesterday",
        "created_before=2026-13-01",
        "created_before=" + "1" * 41,
        "status=" + "&status=".join(["queued"] * 21),
    ],
)
async def test_a_list_out_of_bounds_is_refused(http: httpx2.AsyncClient, query: str) -> None:
    answer = await http.get(f"/api/v1/jobs?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == query.partition("=")[0]


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("backend=" + "b" * 101, "backend"),
        ("tag=", "tag"),
        ("tag=" + "t" * 302, "tag"),
        ("tag=%3Dx", "is no tag"),
        ("tag=%01", "is no tag"),
        ("kind=training", "Did you mean 'train'"),
    ],
)
async def test_a_filter_that_makes_no_sense_says_what_does(http: httpx2.AsyncClient, query: str, word: str) -> None:
    answer = await http.get(f"/api/v1/jobs?{query}")
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert word in answer.json()["detail"] + answer.json()["fix"]
    assert answer.json()["fix"]


async def test_an_unknown_status_gets_the_nearest(http: httpx2.AsyncClient) -> None:
    answer = await http.get("/api/v1/jobs?status=runing")
    assert answer.status_code == 422
    assert "Did you mean 'running'?" in answer.json()["fix"]


async def test_a_job_by_the_end_of_its_id(http: httpx2.AsyncClient, control: FakeControl) -> None:
    control.add(FakeJob())
    answer = await http.get("/api/v1/jobs/001")
    assert answer.json()["id"] == JOB
    assert answer.json()["recent_logs"] == ["secret line"]


@pytest.mark.parametrize(("status", "expected"), [("running", 202), ("completed", 200)])
async def test_cancel(http: httpx2.AsyncClient, control: FakeControl, status: str, expected: int) -> None:
    control.add(FakeJob(status=status))
    answer = await http.post(f"/api/v1/jobs/{JOB}/cancel")
    assert answer.status_code == expected
    assert answer.json()["id"] == JOB


async def test_logs_come_as_written_with_where_to_go_on(http: httpx2.AsyncClient, control: FakeControl) -> None:
    control.add(FakeJob(outputs=[b"first", b"caf\xc3\xa9 \xff\n"], ended=1))
    answer = await http.get(f"/api/v1/jobs/{JOB}/logs?offset=1&limit=6")
    assert answer.content == b"af\xc3\xa9 \xff"
    assert {name: answer.headers[f"X-Crucible-{name}"] for name in ("Attempt", "Attempts", "Offset", "Next")} == {
        "Attempt": "2",
        "Attempts": "2",
        "Offset": "1",
        "Next": "7",
    }
    assert answer.headers["X-Crucible-Complete"] == "false"
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"


async def test_logs_of_an_attempt_that_is_over_are_complete(http: httpx2.AsyncClient, control: FakeControl) -> None:
    control.add(FakeJob(outputs=[b"first", b""], ended=1))
    answer = await http.get(f"/api/v1/jobs/{JOB}/logs?attempt=1&since=1.5")
    assert (answer.content, answer.headers["X-Crucible-Complete"]) == (b"first", "true")
    assert control.asked[-1]["since"] == 1.5


@pytest.mark.parametrize("query", ["limit=0", "limit=8388609", "attempt=0", "since=-1", "since=nan", "offset=1e9"])
async def test_logs_out_of_bounds_are_refused(http: httpx2.AsyncClient, control: FakeControl, query: str) -> None:
    control.add(FakeJob())
    assert (await http.get(f"/api/v1/jobs/{JOB}/logs?{query}")).status_code == 422


async def test_metrics_pass_series_and_points(http: httpx2.AsyncClient, control: FakeControl) -> None:
    one = {"count": 1, "last": float("nan"), "min": 0.5, "max": 0.5, "points": [[1, float("inf"), 2.0]]}
    control.add(FakeJob(series={"loss": one}))
    answer = await http.get(f"/api/v1/jobs/{JOB}/metrics?series=loss&series=acc&points=9")
    assert control.asked == [{"series": ["loss", "acc"], "points": 9}]
    loss = answer.json()["series"]["loss"]
    assert (loss["last"], loss["points"]) == (None, [[1, None, 2.0]])


async def test_events_of_one_job_and_of_all(http: httpx2.AsyncClient, control: FakeControl) -> None:
    control.add(FakeJob(events=[{"n": n, "cursor": 10 * n} for n in (1, 2, 3)]))
    one = (await http.get(f"/api/v1/jobs/{JOB}/events?after=1&limit=1")).json()
    assert [event["n"] for event in one["items"]] == [2]
    all_ = (await http.get("/api/v1/events?after=20")).json()
    assert [event["cursor"] for event in all_["items"]] == [30]


async def test_a_job_that_ended_is_resumed(http: httpx2.AsyncClient, control: FakeControl) -> None:
    control.add(FakeJob(status="failed", phase="failed", checkpoints=[FakeCheckpoint()]))
    wish = {"checkpoint": "latest", "backend": "local"}
    answer = await http.post(f"/api/v1/jobs/{JOB}/resume", json=wish)
    assert (answer.status_code, answer.json()["status"]) == (202, "queued")
    assert control.asked == [wish]


async def test_a_resumption_needs_no_body(http: httpx2.AsyncClient, control: FakeControl) -> None:
    control.add(FakeJob(status="completed", phase="completed"))
    assert (await http.post(f"/api/v1/jobs/{JOB}/resume")).status_code == 202
    assert control.asked == [{"checkpoint": None, "backend": None}]


async def test_a_job_that_runs_is_not_resumed(http: httpx2.AsyncClient, control: FakeControl) -> None:
    control.add(FakeJob())
    answer = await http.post(f"/api/v1/jobs/{JOB}/resume", json={})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert "crucible cancel" in answer.json()["fix"]


@pytest.mark.parametrize("body", [{"checkpoint": ""}, {"backend": 3}, {"step": 5}, []])
async def test_a_wrong_resumption_is_refused(http: httpx2.AsyncClient, control: FakeControl, body: object) -> None:
    control.add(FakeJob(status="failed", phase="failed"))
    assert (await http.post(f"/api/v1/jobs/{JOB}/resume", json=body)).status_code == 422
    assert control.asked == []


async def test_a_resumption_from_an_unknown_checkpoint(http: httpx2.AsyncClient, control: FakeControl) -> None:
    job = control.add(FakeJob(status="failed", phase="failed"))
    answer = await http.post(f"/api/v1/jobs/{JOB}/resume", json={"checkpoint": "nosuch"})
    assert (answer.status_code, job.status) == (404, "failed")
    assert "crucible checkpoints" in answer.json()["fix"]


async def test_a_job_is_run_again_once_per_key(http: httpx2.AsyncClient, control: FakeControl) -> None:
    old = control.add(FakeJob(f"job-{77:026d}", "failed", "failed")).id
    headers = {"Idempotency-Key": "k-1"}
    first, second = [await http.post(f"/api/v1/jobs/{old}/rerun", headers=headers) for _ in range(2)]
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"] != old
    assert first.headers["Location"] == f"/api/v1/jobs/{first.json()['id']}"
    assert (await http.post("/api/v1/jobs/nosuch/rerun")).status_code == 404


@pytest.mark.parametrize(("query", "meant"), [("stats=failed", "status"), ("offset=7", None), ("%ff%00x=1", None)])
async def test_a_filter_that_there_is_none_of_does_not_show_every_job(
    http: httpx2.AsyncClient, query: str, meant: str | None
) -> None:
    answer = await http.get(f"/api/v1/jobs?{query}")
    assert answer.status_code == 422
    assert answer.json().get("meant") == meant
