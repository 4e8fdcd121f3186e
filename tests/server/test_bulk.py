"""Many jobs with one request."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from tests.server.fake_control import JOB, FakeControl, FakeJob

from crucible.core.jobfilter import JobFilter

SPEC = {"command": ["true"]}


async def test_each_item_has_its_answer(http: httpx2.AsyncClient, control: FakeControl) -> None:
    jobs = [
        {"spec": SPEC, "key": "a"},
        {"spec": {"command": []}},
        {"spec": SPEC, "key": "a"},
        {"spec": {"command": ["false"]}, "key": "a"},
        {"spec": SPEC, "key": "not visible"},
        {"spec": "a text"},
        {"spec": SPEC},
    ]
    answer = await http.post("/api/v1/jobs/bulk", json={"jobs": jobs})
    assert answer.status_code == 200
    items = answer.json()["items"]
    assert [item["index"] for item in items] == list(range(7))
    assert [item["status"] for item in items] == [201, 422, 200, 409, 422, 422, 201]
    assert (answer.json()["created"], answer.json()["refused"]) == (2, 4)
    assert items[0]["job"]["id"] == items[2]["job"]["id"]
    assert items[1]["problem"]["errors"][0]["field"] == "command"
    assert all(item["problem"]["fix"] for item in items if "problem" in item)
    assert len(control.known) == 2


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
async def test_a_batch_that_makes_no_sense_is_refused_whole(
    http: httpx2.AsyncClient, control: FakeControl, body: Any
) -> None:
    answer = await http.post("/api/v1/jobs/bulk", json=body)
    assert answer.status_code == 422
    assert answer.json()["fix"]
    assert control.known == {}


async def test_five_hundred_are_not_too_many(http: httpx2.AsyncClient, control: FakeControl) -> None:
    answer = await http.post("/api/v1/jobs/bulk", json={"jobs": [{"spec": SPEC}] * 500})
    assert (answer.status_code, answer.json()["created"], len(control.known)) == (200, 500, 500)


async def test_a_batch_larger_than_a_request_may_be(http: httpx2.AsyncClient) -> None:
    big = {"command": ["x" * 100_000]}
    assert (await http.post("/api/v1/jobs/bulk", json={"jobs": [{"spec": big}] * 100})).status_code == 413


async def test_jobs_are_cancelled_by_a_filter(http: httpx2.AsyncClient, control: FakeControl) -> None:
    control.add(FakeJob())
    body = {"filter": {"tag": ["old"], "status": ["queued"]}, "dry_run": True}
    answer = await http.post("/api/v1/jobs/cancel", json=body)
    found = answer.json()
    assert (found["jobs"], found["more"], found["dry_run"]) == (1, False, True)
    assert found["items"][0]["job"]["id"] == JOB
    assert control.asked == [
        {"wanted": JobFilter(tag=["old"], status=["queued"]), "limit": 1000, "dry_run": True},
    ]


async def test_jobs_are_cancelled_by_their_ids(http: httpx2.AsyncClient, control: FakeControl) -> None:
    control.add(FakeJob())
    answer = await http.post("/api/v1/jobs/cancel", json={"ids": [JOB, "nobody", JOB[-6:]]})
    items = answer.json()["items"]
    assert (answer.status_code, answer.json()["jobs"]) == (200, 1)
    assert items[1]["id"] == "nobody"
    assert items[1]["problem"]["status"] == 404
    assert control.asked == [{"refs": [JOB, "nobody", JOB[-6:]], "dry_run": False}]


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
async def test_what_does_not_say_which_jobs_cancels_none(
    http: httpx2.AsyncClient, control: FakeControl, body: Any
) -> None:
    answer = await http.post("/api/v1/jobs/cancel", json=body)
    assert answer.status_code == 422
    assert answer.json()["fix"]
    assert control.asked == []
