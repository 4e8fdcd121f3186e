from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_server import AGAIN, JOB, TOKEN, FakeServer, checkpoint_view, completed, failed, job_view
from tests.client.test_blocking import moved, place

from crucible import Job, JobFailed, MLPlatform, Requirements, SyncJob, SyncMLPlatform
from crucible.core.errors import BadInput, Conflict, NotAllowed, NotFound, TimedOut

pytestmark = pytest.mark.enable_socket


@pytest.fixture
async def platform(server: FakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[MLPlatform]:
    server.backends = [place("local", capabilities={"slots": "counted"})]
    monkeypatch.chdir(tmp_path)
    async with MLPlatform(server.url, token=TOKEN) as found:
        yield found


@pytest.mark.parametrize(("one", "other"), [(MLPlatform, SyncMLPlatform), (Job, SyncJob)])
def test_both_clients_have_the_same_methods(one: type, other: type) -> None:
    only_there = {"sync", "api", "line", "send", "look", "payload", "view", "in_thread"}

    def methods(kind: type) -> dict[str, Any]:
        return {name: value for name, value in vars(kind).items() if name[0] != "_" and name not in only_there}

    assert methods(one).keys() == methods(other).keys()
    for name, method in methods(one).items():
        if callable(method):
            wanted = set(inspect.signature(getattr(other, name)).parameters) - {"stop"}
            assert set(inspect.signature(method).parameters) == wanted, name


async def test_submitted_without_waiting_it_is_followed(platform: MLPlatform, server: FakeServer) -> None:
    server.ends_as = completed()
    job = platform.submit(code="print(1)", requirements=Requirements(cpus=1))
    statuses = [status async for status in job.monitor()]
    assert statuses[-1].ended
    assert server.specs[0]["resources"]["cpus"] == 1


async def test_a_recommendation_submits_nothing(platform: MLPlatform, server: FakeServer) -> None:
    needs = Requirements(duration_hours_estimated=3, max_cost_usd=2, interruptible=True, gpus=1)
    plan = await platform.recommend(
        code="import torch", requirements=needs, preferences={"optimize_for": "balanced", "deadline_hours": 5}
    )
    assert plan.chosen is not None
    assert plan.chosen.backend == "local"
    (asked,) = server.plans_asked
    assert (asked["optimize"], asked["hours"], asked["max_cost_usd"], asked["deadline_hours"]) == ("balanced", 3, 2, 5)
    assert (asked["interruptible"], asked["resources"]["gpus"], "market" in asked) == (True, 1, False)
    assert not server.specs


async def test_a_recommendation_at_places_that_are_named(platform: MLPlatform, server: FakeServer) -> None:
    await platform.recommend(code="1", places=["rehearsal", "local"])
    assert (server.plans_asked[0]["backend"], server.plans_asked[0]["fallback"]) == ("rehearsal", ["local"])
    with pytest.raises(BadInput):
        await platform.recommend(code="1", preferences={"deadline_hours": -1})


async def test_awaited_it_has_an_id(platform: MLPlatform) -> None:
    job = await platform.submit(code="print(1)", name="mine")
    assert (job.id, job.name) == (JOB, "mine")
    assert (await job) is job
    assert "job-abc123" in repr(job)


async def test_the_id_before_the_server_has_answered_says_what_to_do(platform: MLPlatform) -> None:
    job = platform.submit(code="print(1)")
    assert "being submitted" in repr(job)
    with pytest.raises(Conflict, match=r"await platform\.submit"):
        _ = job.id
    await job


async def test_bad_input_is_raised_at_once(platform: MLPlatform) -> None:
    with pytest.raises(BadInput, match="gpus must be"):
        platform.submit(code="x", requirements={"gpus": -1})
    with pytest.raises(BadInput, match="nothing to run"):
        platform.submit()


async def test_what_the_server_refuses_is_raised_by_whoever_waits_first(server: FakeServer) -> None:
    async with MLPlatform(server.url, token="wrong") as other:
        job = other.submit(code="print(1)")
        with pytest.raises(NotAllowed):
            async for _ in job.monitor():
                pass


async def test_a_refusal_that_nobody_asked_for_is_a_warning(server: FakeServer) -> None:
    async with MLPlatform(server.url, token="wrong") as other:
        job = other.submit(code="print(1)")
        while not job._pending.done():
            await asyncio.sleep(0)
        with pytest.warns(ResourceWarning, match="was not submitted"):
            job.__del__()


async def test_who_gives_up_waiting_does_not_take_the_job_back(platform: MLPlatform, server: FakeServer) -> None:
    jobs = [platform.submit(code=f"print({n})") for n in range(12)]
    for job in jobs:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(job.status(), 0)
    await asyncio.gather(*jobs)
    assert len(server.specs) == 12


async def test_a_closed_platform_says_so(server: FakeServer) -> None:
    platform = MLPlatform(server.url, token=TOKEN)
    await platform.close()
    with pytest.raises(Conflict, match="closed"):
        platform.submit(code="print(1)")
    with pytest.raises(Conflict, match="closed"):
        await platform.jobs()


class TestJobs:
    @pytest.fixture(autouse=True)
    def a_job(self, server: FakeServer) -> None:
        server.jobs[JOB] = job_view()

    async def test_one_and_many(self, platform: MLPlatform) -> None:
        assert [job.id for job in await platform.jobs(active=True)] == [JOB]
        assert (await platform.job("last")).id == JOB
        assert [place.name for place in await platform.backends()] == ["local"]
        assert await platform.machines() == ()
        with pytest.raises(NotFound):
            await platform.job("nosuch")

    async def test_a_move_is_told_even_to_a_slow_reader(self, platform: MLPlatform, server: FakeServer) -> None:
        progress = [{"stream": "progress", "progress": {"fraction": n / 100}} for n in range(100)]
        end = completed(backend="far", previous_backend="local")
        server.acts = [([moved(), moved(backend="far"), *progress, moved(**end)], 1000)]
        server.jobs[JOB] = job_view(backend="far")
        job = await platform.job(JOB)
        job._pending.result().view = job.view.model_copy(update={"backend": "local"})
        found = []
        async for status in job.monitor():
            found.append(status)
            await asyncio.sleep(0)
        assert sum(status.backend_changed for status in found) >= 1
        assert found[-1].ended

    async def test_who_stops_following_leaves_no_stream_behind(self, platform: MLPlatform, server: FakeServer) -> None:
        server.acts = [([moved()], 0)]
        job = platform.job(JOB)
        async with aclosing(job.monitor()) as statuses:
            async for status in statuses:
                assert not status.ended
                break
        assert (await job.status()).phase == "running"

    async def test_waiting_for_the_end_and_not_for_ever(self, platform: MLPlatform, server: FakeServer) -> None:
        server.acts = [([moved()], 0)]
        with pytest.raises(TimedOut):
            await platform.job(JOB).wait(timeout=0.05)
        server.acts, server.ends_as = [], failed(3)
        assert (await platform.job(JOB).wait()).exit_code == 3
        with pytest.raises(JobFailed):
            await platform.job(JOB).result()

    async def test_many_may_be_waited_for_at_once(self, platform: MLPlatform, server: FakeServer) -> None:
        server.ends_as = completed()
        ended = await asyncio.gather(*(platform.job(JOB).wait(60) for _ in range(30)))
        assert {status.state for status in ended} == {"completed"}

    async def test_what_it_left(self, platform: MLPlatform, server: FakeServer, tmp_path: Path) -> None:
        server.jobs[JOB] = completed()
        server.log, server.artifacts = b"one\ntwo\n", {"model.bin": b"weights"}
        server.series = {"loss": {"count": 1, "points": [[1, 0.5, 10.0]]}}
        view = checkpoint_view()
        server.checkpoints, server.contents = [view], {view["id"]: b"weights"}
        job = platform.job(JOB)
        assert [file.path for file in (await job.result()).files] == ["model.bin"]
        assert [line async for line in job.logs()] == ["one", "two"]
        assert (await job.metrics("loss"))[0]["loss"] == 0.5
        assert await job.download(tmp_path) == [tmp_path / "model.bin"]
        assert len(await job.checkpoints()) == 1
        assert (await job.download_checkpoint(into=tmp_path)).exists()

    async def test_what_happened(self, platform: MLPlatform, server: FakeServer) -> None:
        server.events = [{"n": 1, "type": "submitted", "at": None, "data": {}}]
        assert [event.type async for event in platform.job(JOB).events()] == ["submitted"]

    async def test_what_changes_it(self, platform: MLPlatform, server: FakeServer) -> None:
        job = platform.job(JOB)
        await job.checkpoint_now()
        await job.cancel()
        assert (await job.wait(30)).state == "cancelled"
        assert (await job.resume(checkpoint=None)).state == "queued"
        assert (await job.rerun()).id == AGAIN
