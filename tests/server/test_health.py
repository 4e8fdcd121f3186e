from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from tests.server.asgi import SocketClient
from tests.server.conftest import PACE, TOKEN
from tests.server.fake_control import JOB, FakeControl, FakeJob

OTHER = JOB[:-1] + "2"


async def test_a_job_is_judged(http: httpx2.AsyncClient, control: FakeControl) -> None:
    control.add(FakeJob(verdict="stalled"))
    answer = await http.get(f"/api/v1/jobs/{JOB}/health")
    assert answer.status_code == 200
    assert answer.json()["verdict"] == "stalled"


async def test_jobs_are_compared_in_the_order_given(http: httpx2.AsyncClient, control: FakeControl) -> None:
    control.add(FakeJob())
    control.add(FakeJob(OTHER))
    answer = await http.get(f"/api/v1/compare?job={OTHER}&job={JOB}")
    assert [job["id"] for job in answer.json()["jobs"]] == [OTHER, JOB]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/jobs/zzzzzz/health", 404),
        (f"/api/v1/jobs/{'x' * 101}/health", 422),
        ("/api/v1/compare", 422),
        (f"/api/v1/compare?job={JOB}", 422),
        (f"/api/v1/compare?job={JOB}&job=zzzzzz", 404),
        ("/api/v1/compare?" + "&".join(["job=a"] * 51), 422),
    ],
)
async def test_what_is_wrong_is_said(http: httpx2.AsyncClient, control: FakeControl, path: str, status: int) -> None:
    control.add(FakeJob())
    answer = await http.get(path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["fix"]


async def test_both_need_the_token(anonymous: httpx2.AsyncClient) -> None:
    for path in (f"/api/v1/jobs/{JOB}/health", f"/api/v1/compare?job={JOB}&job={OTHER}"):
        assert (await anonymous.get(path)).status_code == 401


async def frames_of(api: FastAPI, control: FakeControl, job: FakeJob) -> list[dict[str, Any]]:
    """What a follower gets while the job gets ill, stays so, and ends."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with SocketClient(api, f"/api/v1/jobs/{JOB}/stream", headers) as socket:
        await socket.accepted()
        assert (await socket.frame())["stream"] == "job"
        first = await socket.frame()
        job.verdict = "diverging"
        control.tell(JOB, "points")
        second = await socket.frame()
        control.tell(JOB, "points")
        job.status = job.phase = "completed"
        control.tell(JOB, "event")
        rest, _code = await socket.frames_until_close()
    return [first, second, *rest]


async def test_a_follower_hears_of_each_change_and_of_the_last_with_the_job(api: FastAPI, control: FakeControl) -> None:
    api.state.pace = replace(PACE, health=0.0)
    found = await frames_of(api, control, control.add(FakeJob()))
    assert [frame["stream"] for frame in found] == ["health", "health", "job"]
    assert [frame["health"]["verdict"] for frame in found[:2]] == ["healthy", "diverging"]
    assert found[-1]["job"]["health"]["verdict"] == "diverging"
