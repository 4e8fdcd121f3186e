from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.client.compat.conftest import FakeAws
from tests.client.real_server import RealServer, RunningJob

from crucible import MLPlatform
from crucible.client.compat import ExecutionStrategy, LocalExecutor
from crucible.core.compute.offers import Market
from crucible.core.errors import BadInput, UnknownName

pytestmark = pytest.mark.enable_socket


def execution_id(job: RunningJob) -> str:
    return f"local-{job.id}-77"


@pytest.fixture
def local(platform: MLPlatform) -> LocalExecutor:
    return LocalExecutor(platform)


@pytest.fixture
def aws(platform: MLPlatform) -> ExecutionStrategy:
    return ExecutionStrategy("aws", platform)


async def test_whether_a_backend_can_execute(platform: MLPlatform, real: RealServer, aws_backend: FakeAws) -> None:
    assert await LocalExecutor(platform).can_execute()
    assert not await LocalExecutor(platform, needs_gpu=True).can_execute()
    assert await ExecutionStrategy("aws", platform, needs_gpu=True).can_execute()
    assert not await ExecutionStrategy("nosuch", platform).can_execute()
    aws_backend.sold_out = {Market.SPOT, Market.ON_DEMAND}
    real.run(real.harness.offers.refresh)
    assert not await ExecutionStrategy("aws", platform).can_execute()


async def test_this_computer_is_free_and_others_bill_by_time(local: LocalExecutor, aws: ExecutionStrategy) -> None:
    assert await local.estimate_cost({"epochs": 100}) == 0.0
    assert await aws.estimate_cost({"duration_hours": 10}) == pytest.approx(2.0)
    assert await aws.estimate_cost({"duration_hours": 10, "instance_type": "g4dn"}) == pytest.approx(2.0)
    with pytest.raises(BadInput, match="duration_hours"):
        await aws.estimate_cost({})
    with pytest.raises(BadInput, match="duration_hours must be at least 0"):
        await aws.estimate_cost({"duration_hours": -1})
    with pytest.raises(UnknownName, match="instance type 'p3'"):
        await aws.estimate_cost({"instance_type": "p3"})


async def test_a_model_is_run_with_its_number_name_and_config(
    local: LocalExecutor, real: RealServer, tmp_path: Path
) -> None:
    (tmp_path / "yolo.py").write_text("print(1)\n")
    real.play()
    config = {"epochs": 3, "requirements": {"cpus": 1}}
    assert await local.submit_job(7, "yolo.py", config) == execution_id(real.last)
    (spec,) = real.specs
    assert spec["command"][:-1] == ["{python}", "yolo.py", "--job-id", "7", "--model", "yolo", "--config"]
    assert json.loads(spec["command"][-1]) == {"epochs": 3}
    assert (spec["backend"], spec["resources"]["cpus"], spec["tags"]) == ("local", 1, ["training-7"])


async def test_without_a_process_in_time_the_id_ends_with_zero(
    platform: MLPlatform, real: RealServer, tmp_path: Path
) -> None:
    (tmp_path / "yolo.py").write_text("print(1)\n")
    executor = ExecutionStrategy("local", platform, start_seconds=0.05)
    assert await executor.submit_job(7, "yolo.py", {}) == f"local-{real.last.id}-0"


@pytest.mark.parametrize("config", [[], {"x": object()}, {"requirements": {"gpus": -1}}])
async def test_a_config_that_is_none(local: LocalExecutor, config: Any) -> None:
    with pytest.raises(BadInput):
        await local.submit_job(7, "yolo.py", config)


def waiting(real: RealServer) -> RunningJob:
    real.submit(cpus=2)
    return real.submit(cpus=2)


def cancelled(real: RealServer) -> RunningJob:
    job = real.start()
    real.run(job.cancel)
    real.run(job.obey)
    return job


@pytest.mark.parametrize(
    ("make", "status", "code", "phase"),
    [
        (RealServer.start, "running", None, "running"),
        (waiting, "running", None, "queued"),
        (RealServer.complete, "completed", 0, "completed"),
        (lambda real: real.complete(3), "failed", 3, "failed"),
        (cancelled, "failed", -15, "cancelled"),
    ],
)
async def test_statuses(
    local: LocalExecutor,
    real: RealServer,
    make: Callable[[RealServer], RunningJob],
    status: str,
    code: int | None,
    phase: str,
) -> None:
    found = await local.get_status(execution_id(make(real)))
    assert (found["status"], found.get("return_code"), found["phase"]) == (status, code, phase)
    assert bool(found["started_at"]) == (phase != "queued")


@pytest.mark.parametrize("id", ["local-job-nosuch-1", "nonsense", "local-4711", "", None, 7])
async def test_who_is_not_there(local: LocalExecutor, id: Any) -> None:
    assert await local.get_status(id) == {"status": "not_found"}
    assert await local.get_logs(id) == ""
    assert await local.get_metrics(id) == {}
    await local.cancel_job(id)


async def test_cancel_logs_and_metrics(local: LocalExecutor, real: RealServer) -> None:
    job = real.start()
    real.run(job.write, b"one\ntwo\n")
    real.run(job.points, loss=[0.75, 0.5])
    id = execution_id(job)
    assert await local.get_logs(id) == "one\ntwo\n"
    assert await local.get_logs(id, offset=4) == "two\n"
    assert await local.get_metrics(id) == {"loss": 0.5}
    await local.cancel_job(id)
    assert real.view(job).status == "cancelled"
    with pytest.raises(BadInput, match="offset"):
        await local.get_logs(id, offset=-1)
