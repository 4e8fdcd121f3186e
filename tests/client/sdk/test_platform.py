from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from tests.client.real_server import RealServer, RunningJob
from tests.server.app import TOKEN

from crucible import Job, JobFailed, MLPlatform, Requirements, SyncJob, SyncMLPlatform
from crucible.core.errors import BadInput, Conflict, NotAllowed, NotFound, TimedOut

pytestmark = pytest.mark.enable_socket


@pytest.fixture
async def platform(real: RealServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[MLPlatform]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    async with MLPlatform(real.url, token=TOKEN) as found:
        yield found


@pytest.mark.parametrize(("one", "other"), [(MLPlatform, SyncMLPlatform), (Job, SyncJob)])
def test_both_clients_have_the_same_methods(one: type, other: type) -> None:
    only_there = {"sync", "api", "submit_job", "plan_job", "load", "view", "in_thread"}

    def methods(kind: type) -> dict[str, Any]:
        return {name: value for name, value in vars(kind).items() if name[0] != "_" and name not in only_there}

    assert methods(one).keys() == methods(other).keys()
    for name, method in methods(one).items():
        if callable(method):
            wanted = set(inspect.signature(getattr(other, name)).parameters) - {"stop"}
            assert set(inspect.signature(method).parameters) == wanted, name


async def test_submitted_without_waiting_it_is_followed(platform: MLPlatform, real: RealServer) -> None:
    real.play()
    job = platform.submit(code="print(1)", requirements=Requirements(cpus=1))
    statuses = [status async for status in job.monitor()]
    assert statuses[-1].ended
    assert real.specs[0]["resources"]["cpus"] == 1


async def test_a_recommendation_submits_nothing(platform: MLPlatform, real: RealServer) -> None:
    needs = Requirements(duration_hours_estimated=3, max_cost_usd=2, interruptible=True, gpus=1)
    plan = await platform.recommend(
        code="import torch", requirements=needs, preferences={"optimize_for": "balanced", "deadline_hours": 5}
    )
    assert plan.chosen is not None
    assert plan.chosen.backend == "local"
    ((path, asked),) = real.sent
    assert path == "/api/v1/plan"
    assert (asked["optimize"], asked["hours"], asked["max_cost_usd"], asked["deadline_hours"]) == ("balanced", 3, 2, 5)
    assert (asked["interruptible"], asked["resources"]["gpus"]) == (True, 1)
    assert (asked["market"], asked["spot_fallback"]) == ("spot", True)
    assert not (await platform.jobs())


async def test_a_recommendation_at_places_that_are_named(platform: MLPlatform, real: RealServer) -> None:
    plan = await platform.recommend(code="1", places=["far", "local"])
    assert plan.chosen is not None
    assert plan.chosen.backend == "far"
    assert (real.sent[0][1]["backend"], real.sent[0][1]["fallback"]) == ("far", ["local"])
    with pytest.raises(BadInput):
        await platform.recommend(code="1", preferences={"deadline_hours": -1})


async def test_awaited_it_has_an_id(platform: MLPlatform, real: RealServer) -> None:
    job = await platform.submit(code="print(1)", name="mine")
    assert (job.id, job.name) == (real.last.id, "mine")
    assert (await job) is job
    assert real.last.short in repr(job)


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


async def test_what_the_server_refuses_is_raised_by_whoever_waits_first(real: RealServer) -> None:
    async with MLPlatform(real.url, token="wrong") as other:
        job = other.submit(code="print(1)")
        with pytest.raises(NotAllowed):
            async for _ in job.monitor():
                pass


async def test_a_refusal_that_nobody_asked_for_is_a_warning(real: RealServer) -> None:
    async with MLPlatform(real.url, token="wrong") as other:
        job = other.submit(code="print(1)")
        while not job._pending.done():
            await asyncio.sleep(0)
        with pytest.warns(ResourceWarning, match="was not submitted"):
            job.__del__()


async def test_who_gives_up_waiting_does_not_take_the_job_back(platform: MLPlatform, real: RealServer) -> None:
    jobs = [platform.submit(code=f"print({n})") for n in range(12)]
    for job in jobs:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(job.status(), 0)
    await asyncio.gather(*jobs)
    assert len(real.specs) == len(await platform.jobs()) == 12


async def test_a_closed_platform_says_so(real: RealServer) -> None:
    platform = MLPlatform(real.url, token=TOKEN)
    await platform.close()
    with pytest.raises(Conflict, match="closed"):
        platform.submit(code="print(1)")
    with pytest.raises(Conflict, match="closed"):
        await platform.jobs()


async def test_one_and_many(platform: MLPlatform, real: RealServer) -> None:
    _, running = real.complete(), real.start()
    assert [job.id for job in await platform.jobs(active=True)] == [running.id]
    assert (await platform.job("last")).id == running.id
    assert [backend.name for backend in await platform.backends()] == ["far", "local", "play"]
    assert [machine.id for machine in await platform.machines()] == [real.view(running).attempts[0].machine]
    with pytest.raises(NotFound):
        await platform.job("nosuch")


async def test_a_move_is_told_even_to_a_slow_reader(platform: MLPlatform, real: RealServer) -> None:
    async def move(job: RunningJob) -> None:
        await job.lose_machine()
        await job.start()
        for n in range(100):
            await job.progress(fraction=n / 100)
        await job.end()

    started = real.start(backend="far", fallback=("local",))
    found = []
    async for status in platform.job(started.id).monitor():
        if not found:
            real.run(move, started)
        found.append(status)
        await asyncio.sleep(0)
    assert [(status.previous_backend, status.backend) for status in found if status.backend_changed] == [
        ("far", "local")
    ]
    assert found[-1].ended
    assert len(found) < 100


async def test_who_stops_following_leaves_no_stream_behind(platform: MLPlatform, real: RealServer) -> None:
    job = platform.job(real.start().id)
    async with aclosing(job.monitor()) as statuses:
        async for status in statuses:
            assert not status.ended
            break
    assert (await job.status()).phase == "running"


async def test_waiting_for_the_end_and_not_for_ever(platform: MLPlatform, real: RealServer) -> None:
    started = real.start()
    with pytest.raises(TimedOut):
        await platform.job(started.id).wait(timeout=0.05)
    real.play_now(started, lambda job: job.end(3))
    assert (await platform.job(started.id).wait()).exit_code == 3
    with pytest.raises(JobFailed):
        await platform.job(started.id).result()


async def test_many_may_be_waited_for_at_once(platform: MLPlatform, real: RealServer) -> None:
    started = real.start()
    real.play_now(started, RunningJob.end)
    ended = await asyncio.gather(*(platform.job(started.id).wait(60) for _ in range(30)))
    assert {status.state for status in ended} == {"completed"}


async def test_what_it_left(platform: MLPlatform, real: RealServer, tmp_path: Path) -> None:
    async def play(job: RunningJob) -> None:
        await job.write(b"one\ntwo\n")
        await job.artifact("model.bin", b"weights")
        await job.points(loss=[0.5])
        await job.checkpoint("step_00000600.pt", b"weights", 600)
        await job.end()

    started = real.start()
    real.run(play, started)
    job = platform.job(started.id)
    assert [file.path for file in (await job.result()).files] == ["model.bin"]
    assert [line async for line in job.logs()] == ["one", "two"]
    assert (await job.metrics("loss"))[0]["loss"] == 0.5
    assert await job.download(tmp_path) == [tmp_path / "model.bin"]
    assert len(await job.checkpoints()) == 1
    assert (await job.download_checkpoint(into=tmp_path)).read_bytes() == b"weights"


async def test_what_happened(platform: MLPlatform, real: RealServer) -> None:
    types = [event.type async for event in platform.job(real.submit().id).events()]
    assert types[0] == "submitted"
    assert len(types) > 1


async def test_what_changes_it(platform: MLPlatform, real: RealServer) -> None:
    job = platform.job(real.start().id)
    await job.checkpoint_now()
    await job.cancel()
    assert (await job.wait(30)).state == "cancelled"
    resumed = await job.resume(checkpoint=None)
    assert (resumed.ended, resumed.attempt) == (False, 2)
    assert (await job.rerun()).id == real.last.id
