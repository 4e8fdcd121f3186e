"""Many jobs with one request."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from tests.server.app import App

from crucible.control.db import schema as t
from crucible.core.lifecycle import JobState

SPEC = {"command": ["true"]}
JOB = "job-00000000000000000000000001"


async def test_each_item_has_its_answer(client: httpx2.AsyncClient, app: App) -> None:
    jobs = [
        {"spec": SPEC, "key": "a"},
        {"spec": {"command": []}},
        {"spec": SPEC, "key": "a"},
        {"spec": {"command": ["false"]}, "key": "a"},
        {"spec": SPEC, "key": "not visible"},
        {"spec": "a text"},
        {"spec": SPEC},
    ]
    answer = await client.post("/api/v1/jobs/bulk", json={"jobs": jobs})
    assert answer.status_code == 200
    items = answer.json()["items"]
    assert [item["index"] for item in items] == list(range(7))
    assert [item["status"] for item in items] == [201, 422, 200, 409, 422, 422, 201]
    assert (answer.json()["created"], answer.json()["refused"]) == (2, 4)
    assert items[0]["job"]["id"] == items[2]["job"]["id"]
    assert items[1]["problem"]["errors"][0]["field"] == "command"
    assert all(item["problem"]["fix"] for item in items if "problem" in item)
    assert await app.harness.count(t.jobs) == 2


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"jobs": []},
        {"jobs": SPEC},
        {"jobs": [SPEC]},
        {"jobs": [{"spec": SPEC, "key": 7}]},
        {"jobs": [{"spec": SPEC}] * 501},
        {"jobs": [{"spec": SPEC}], "atomic": True},
    ],
)
async def test_a_batch_that_makes_no_sense_is_refused_whole(client: httpx2.AsyncClient, app: App, body: Any) -> None:
    answer = await client.post("/api/v1/jobs/bulk", json=body)
    assert answer.status_code == 422
    assert answer.json()["fix"]
    assert await app.harness.count(t.jobs) == 0


async def test_five_hundred_are_not_too_many(client: httpx2.AsyncClient, app: App) -> None:
    answer = await client.post("/api/v1/jobs/bulk", json={"jobs": [{"spec": SPEC}] * 500})
    assert (answer.status_code, answer.json()["created"], await app.harness.count(t.jobs)) == (200, 500, 500)


async def test_a_batch_larger_than_a_request_may_be(client: httpx2.AsyncClient) -> None:
    big = {"command": ["x" * 100_000]}
    assert (await client.post("/api/v1/jobs/bulk", json={"jobs": [{"spec": big}] * 100})).status_code == 413


async def test_jobs_are_cancelled_by_a_filter(client: httpx2.AsyncClient, app: App) -> None:
    await app.harness.submit(cpus=4)
    old, _ = [await app.harness.submit(cpus=4, tags=(tag,)) for tag in ("old", "new")]
    body = {"filter": {"tag": ["old"], "status": ["queued"]}}
    for dry_run, state in ((True, JobState.QUEUED), (False, JobState.CANCELLED)):
        found = (await client.post("/api/v1/jobs/cancel", json={**body, "dry_run": dry_run})).json()
        assert (found["jobs"], found["more"], found["dry_run"]) == (1, False, dry_run)
        assert [item["job"]["id"] for item in found["items"]] == [old]
        assert (await app.harness.world(old)).job.state is state


async def test_jobs_are_cancelled_by_their_ids(client: httpx2.AsyncClient, app: App) -> None:
    await app.harness.submit(cpus=4)
    job = await app.harness.submit(cpus=4)
    answer = await client.post("/api/v1/jobs/cancel", json={"ids": [job, "nobody", job[-6:]]})
    items = answer.json()["items"]
    assert (answer.status_code, answer.json()["jobs"]) == (200, 1)
    assert [item["job"]["status"] for item in items if "job" in item] == ["cancelled", "cancelled"]
    assert items[1]["id"] == "nobody"
    assert items[1]["problem"]["status"] == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"ids": []},
        {"ids": JOB},
        {"ids": [""]},
        {"ids": ["j" * 101]},
        {"ids": ["j"] * 1001},
        {"ids": [JOB], "filter": {"active": True}},
        {"filter": {}},
        {"filter": {"active": False}},
        {"filter": {"status": ["complete"]}},
        {"filter": {"statuses": ["queued"]}},
        {"filter": {"tag": ["="]}},
        {"filter": {"created_after": "soon"}},
        {"filter": {"name": "\x00"}},
        {"filter": {"active": True}, "dry_run": "perhaps"},
        {"filter": {"active": True}, "limit": 5},
    ],
)
async def test_what_does_not_say_which_jobs_cancels_none(client: httpx2.AsyncClient, app: App, body: Any) -> None:
    job = await app.harness.submit()
    answer = await client.post("/api/v1/jobs/cancel", json=body)
    assert answer.status_code == 422
    assert answer.json()["fix"]
    assert (await app.harness.world(job)).job.desired.value == "run"
