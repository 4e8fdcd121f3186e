"""How jobs do, over HTTP and to those who follow them."""

from __future__ import annotations

from dataclasses import replace

import httpx2
import pytest
from tests.server.app import App
from tests.server.asgi import SocketClient
from tests.server.conftest import TIMING, TOKEN

from crucible.wire.documents.messages import MessageKind


async def test_a_job_is_judged(client: httpx2.AsyncClient, app: App) -> None:
    job = await app.ended(code=1)
    answer = await client.get(f"/api/v1/jobs/{job}/health")
    assert answer.status_code == 200
    assert (answer.json()["verdict"], answer.json()["level"]) == ("failed", "bad")


async def test_jobs_are_compared_in_the_order_given(client: httpx2.AsyncClient, app: App) -> None:
    first, second = await app.harness.submit(), await app.harness.submit()
    answer = await client.get(f"/api/v1/compare?job={second}&job={first}")
    assert [job["id"] for job in answer.json()["jobs"]] == [second, first]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/jobs/zzzzzz/health", 404),
        (f"/api/v1/jobs/{'x' * 101}/health", 422),
        ("/api/v1/compare", 422),
        ("/api/v1/compare?job=last", 422),
        ("/api/v1/compare?job=last&job=zzzzzz", 404),
        ("/api/v1/compare?" + "&".join(["job=a"] * 51), 422),
    ],
)
async def test_what_is_wrong_is_said(client: httpx2.AsyncClient, app: App, path: str, status: int) -> None:
    await app.harness.submit()
    answer = await client.get(path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["fix"]


async def test_both_need_the_token(anonymous: httpx2.AsyncClient) -> None:
    for path in ("/api/v1/jobs/last/health", "/api/v1/compare?job=last&job=last"):
        assert (await anonymous.get(path)).status_code == 401


async def test_a_follower_hears_of_each_change_and_of_the_last_with_the_job(app: App) -> None:
    app.api.state.timing = replace(TIMING, health=0.0)
    job, runner = await app.harness.running()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with SocketClient(app.api, f"/api/v1/jobs/{job}/stream?after=99", headers) as socket:
        await socket.accepted()
        assert (await socket.frame())["stream"] == "job"
        found = [await socket.frame()]
        await runner.say(MessageKind.POINTS, series={"loss": [[n, None, 1.0] for n in range(5)]})
        assert (await socket.frame())["stream"] == "points"
        found.append(await socket.frame())
        await runner.say(MessageKind.POINTS, series={"loss": [[6, None, 1.0]]})
        assert (await socket.frame())["stream"] == "points"
        await runner.end()
        rest, _code = await socket.frames_until_close()
    assert [frame["stream"] for frame in [*found, *rest]] == ["health", "health", "job"]
    assert [frame["health"]["verdict"] for frame in found] == ["too_early", "not_finite"]
    assert rest[-1]["job"]["health"]["verdict"] == "not_finite"
