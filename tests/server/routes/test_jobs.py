"""Jobs over HTTP: submit, list, look at, cancel."""

from __future__ import annotations

import httpx2
import pytest
from tests.server.app import App

from crucible.control.db import schema as t
from crucible.core.lifecycle import JobState
from crucible.wire.documents.messages import MessageKind

SPEC = {"command": ["{python}", "train.py"]}


async def test_a_submitted_job_is_created(client: httpx2.AsyncClient, app: App) -> None:
    answer = await client.post("/api/v1/jobs", json=SPEC)
    assert answer.status_code == 201
    job = answer.json()["id"]
    assert answer.headers["Location"] == f"/api/v1/jobs/{job}"
    assert (await app.harness.world(job)).job.spec.command == ("{python}", "train.py")


async def test_the_same_key_gives_the_same_job(client: httpx2.AsyncClient, app: App) -> None:
    headers = {"Idempotency-Key": "k-1"}
    first = await client.post("/api/v1/jobs", json=SPEC, headers=headers)
    second = await client.post("/api/v1/jobs", json=SPEC, headers=headers)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]
    assert first.headers["Location"] == second.headers["Location"]
    assert await app.harness.count(t.jobs) == 1


async def test_the_same_key_for_another_job_is_a_conflict(client: httpx2.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k-1"}
    await client.post("/api/v1/jobs", json=SPEC, headers=headers)
    other = await client.post("/api/v1/jobs", json={"command": ["false"]}, headers=headers)
    assert other.status_code == 409


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 201, "é", "tab\there"])
async def test_a_key_that_is_not_visible_ascii_is_refused(client: httpx2.AsyncClient, app: App, key: str) -> None:
    headers = {"Idempotency-Key": key.encode("latin-1")}
    answer = await client.post("/api/v1/jobs", json=SPEC, headers=headers)
    assert answer.status_code == 422
    assert answer.json()["field"] == "Idempotency-Key"
    assert await app.harness.count(t.jobs) == 0


async def test_the_longest_key_is_fine(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/api/v1/jobs", json=SPEC, headers={"Idempotency-Key": "~" * 200})
    assert answer.status_code == 201


async def test_a_list_comes_in_pages_of_what_fits(client: httpx2.AsyncClient, app: App) -> None:
    await app.ended()
    jobs = [await app.harness.submit(cpus=4) for _ in range(3)]
    path = "/api/v1/jobs?status=queued&status=running,completed&active=true&limit=2"
    first = (await client.get(path)).json()
    assert [item["id"] for item in first["items"]] == jobs[:0:-1]
    second = (await client.get(f"{path}&cursor={first['next']}")).json()
    assert ([item["id"] for item in second["items"]], second["next"]) == (jobs[:1], None)


@pytest.mark.parametrize(
    "query",
    [
        "backend=cloud,local&kind=benchmark",
        "kind=benchmark",
        "project=default&name=n*",
        "name=n*",
        "named=nightly",
        "tag=a",
        "tag=a&tag=b%3Dc,d",
        "text=train%20me",
        "created_after=2023-11-14T22:15:00Z",
        "created_after=1700000100&created_before=2100-01-01",
    ],
)
async def test_a_list_takes_every_filter(client: httpx2.AsyncClient, app: App, query: str) -> None:
    await app.harness.submit(name="other")
    app.harness.clock.move(3600)
    job = await app.harness.submit(name="nightly", tags=("a", "b=c,d"), kind="benchmark", command=("train", "me"))
    found = await client.get(f"/api/v1/jobs?{query}")
    assert [item["id"] for item in found.json()["items"]] == [job]


async def test_a_list_has_defaults(client: httpx2.AsyncClient, app: App) -> None:
    await app.ended()
    for _ in range(50):
        await app.harness.submit(cpus=4)
    page = (await client.get("/api/v1/jobs")).json()
    assert len(page["items"]) == 50
    rest = (await client.get(f"/api/v1/jobs?cursor={page['next']}")).json()
    assert [item["status"] for item in rest["items"]] == ["completed"]


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
async def test_a_list_out_of_bounds_is_refused(client: httpx2.AsyncClient, query: str) -> None:
    answer = await client.get(f"/api/v1/jobs?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == query.partition("=")[0]


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("backend=" + "b" * 101, "backend"),
        ("tag=", "tag"),
        ("tag=" + "t" * 302, "tag"),
        ("tag=%3Dx", "is not a valid tag"),
        ("tag=%01", "is not a valid tag"),
        ("kind=training", "Did you mean 'train'"),
    ],
)
async def test_a_filter_that_makes_no_sense_says_what_does(client: httpx2.AsyncClient, query: str, word: str) -> None:
    answer = await client.get(f"/api/v1/jobs?{query}")
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert word in answer.json()["detail"] + answer.json()["fix"]
    assert answer.json()["fix"]


async def test_an_unknown_status_gets_the_nearest(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/api/v1/jobs?status=runing")
    assert answer.status_code == 422
    assert "Did you mean 'running'?" in answer.json()["fix"]


async def test_a_job_by_the_end_of_its_id(client: httpx2.AsyncClient, app: App) -> None:
    job = await app.ended(b"one\ntwo\n")
    answer = await client.get(f"/api/v1/jobs/{job[-6:]}")
    assert answer.json()["id"] == job
    assert answer.json()["recent_logs"] == ["one", "two"]


async def test_cancel(client: httpx2.AsyncClient, app: App) -> None:
    job, runner = await app.harness.running()
    answer = await client.post(f"/api/v1/jobs/{job}/cancel")
    assert (answer.status_code, answer.json()["id"], answer.json()["desired"]) == (202, job, "cancel")
    await runner.end(code=1)
    assert (await client.post(f"/api/v1/jobs/{job}/cancel")).status_code == 200


async def test_logs_come_as_written_with_where_to_go_on(client: httpx2.AsyncClient, app: App) -> None:
    job, runner = await app.harness.running(retries={"user": 1, "wait_seconds": 0})
    runner = await app.next_attempt(job, runner, b"first")
    await runner.log(0, 0, b"caf\xc3\xa9 \xff\n")
    answer = await client.get(f"/api/v1/jobs/{job}/logs?offset=1&limit=6")
    assert answer.content == b"af\xc3\xa9 \xff"
    assert {name: answer.headers[f"X-Crucible-{name}"] for name in ("Attempt", "Attempts", "Offset", "Next")} == {
        "Attempt": "2",
        "Attempts": "2",
        "Offset": "1",
        "Next": "7",
    }
    assert answer.headers["X-Crucible-Complete"] == "false"
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"


async def test_logs_of_an_attempt_that_is_over_are_complete(client: httpx2.AsyncClient, app: App) -> None:
    job = await app.ended(b"first", b"")
    answer = await client.get(f"/api/v1/jobs/{job}/logs?attempt=1&since=1.5")
    assert (answer.content, answer.headers["X-Crucible-Complete"]) == (b"first", "true")
    later = await client.get(f"/api/v1/jobs/{job}/logs?attempt=1&since={app.harness.clock.now() + 1}")
    assert (later.content, later.headers["X-Crucible-Next"]) == (b"", "5")


@pytest.mark.parametrize("query", ["limit=0", "limit=8388609", "attempt=0", "since=-1", "since=nan", "offset=1e9"])
async def test_logs_out_of_bounds_are_refused(client: httpx2.AsyncClient, app: App, query: str) -> None:
    await app.harness.submit()
    assert (await client.get(f"/api/v1/jobs/last/logs?{query}")).status_code == 422


async def test_metrics_are_of_the_series_and_no_more_than_asked_for(client: httpx2.AsyncClient, app: App) -> None:
    _, runner = await app.harness.running()
    many = [[n, float(n), 2.0] for n in range(100)]
    await runner.say(MessageKind.POINTS, series={"loss": [[1, None, 2.0]], "acc": many, "other": many})
    answer = await client.get("/api/v1/jobs/last/metrics?series=loss&series=acc&points=10")
    series = answer.json()["series"]
    assert set(series) == {"loss", "acc"}
    assert (series["loss"]["last"], series["loss"]["points"]) == (None, [[1, None, 2.0]])
    assert (series["acc"]["count"], 2 < len(series["acc"]["points"]) <= 10) == (100, True)


async def test_events_of_one_job_and_of_all(client: httpx2.AsyncClient, app: App) -> None:
    first = await app.harness.submit()
    await app.harness.submit()
    one = (await client.get(f"/api/v1/jobs/{first}/events?after=1&limit=1")).json()
    assert [event["n"] for event in one["items"]] == [2]
    all_ = (await client.get("/api/v1/events")).json()["items"]
    assert [event["cursor"] for event in all_] == list(range(1, len(all_) + 1))
    rest = (await client.get(f"/api/v1/events?after={len(all_) - 1}")).json()
    assert rest["items"] == all_[-1:]


CHECKPOINT = {"name": "a.pt", "form": "file", "size": 1, "sha256": "a" * 64, "step": 7, "metric": None}


async def test_a_job_that_ended_is_resumed(client: httpx2.AsyncClient, app: App) -> None:
    job, runner = await app.harness.running()
    await runner.say(MessageKind.CHECKPOINT, **CHECKPOINT)
    await runner.end(code=1)
    answer = await client.post(f"/api/v1/jobs/{job}/resume", json={"checkpoint": "latest", "backend": "local"})
    assert (answer.status_code, answer.json()["generation"]) == (202, 2)
    assert [attempt.resume_from is not None for attempt in (await app.harness.world(job)).attempts] == [False, True]


async def test_a_resumption_needs_no_body(client: httpx2.AsyncClient, app: App) -> None:
    job = await app.ended(code=1)
    assert (await client.post(f"/api/v1/jobs/{job}/resume")).status_code == 202


async def test_a_job_that_runs_is_not_resumed(client: httpx2.AsyncClient, app: App) -> None:
    await app.harness.running()
    answer = await client.post("/api/v1/jobs/last/resume", json={})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert "crucible cancel" in answer.json()["fix"]


@pytest.mark.parametrize("body", [{"checkpoint": ""}, {"backend": 3}, {"step": 5}, []])
async def test_a_wrong_resumption_is_refused(client: httpx2.AsyncClient, app: App, body: object) -> None:
    job = await app.ended(code=1)
    assert (await client.post(f"/api/v1/jobs/{job}/resume", json=body)).status_code == 422
    assert (await app.harness.world(job)).job.state is JobState.FAILED


async def test_a_resumption_from_an_unknown_checkpoint(client: httpx2.AsyncClient, app: App) -> None:
    job = await app.ended(code=1)
    answer = await client.post(f"/api/v1/jobs/{job}/resume", json={"checkpoint": "nosuch"})
    assert (answer.status_code, (await app.harness.world(job)).job.state) == (404, JobState.FAILED)
    assert "crucible checkpoints" in answer.json()["fix"]


async def test_a_job_is_run_again_once_per_key(client: httpx2.AsyncClient, app: App) -> None:
    old = await app.ended(code=1)
    headers = {"Idempotency-Key": "k-1"}
    first, second = [await client.post(f"/api/v1/jobs/{old}/rerun", headers=headers) for _ in range(2)]
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"] != old
    assert first.headers["Location"] == f"/api/v1/jobs/{first.json()['id']}"
    assert (await client.post("/api/v1/jobs/nosuch/rerun")).status_code == 404


@pytest.mark.parametrize(("query", "meant"), [("stats=failed", "status"), ("offset=7", None), ("%ff%00x=1", None)])
async def test_a_filter_that_there_is_none_of_does_not_show_every_job(
    client: httpx2.AsyncClient, query: str, meant: str | None
) -> None:
    answer = await client.get(f"/api/v1/jobs?{query}")
    assert answer.status_code == 422
    assert answer.json().get("meant") == meant
