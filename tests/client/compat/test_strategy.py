from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_server import JOB, FakeServer, completed, failed, job_view

from crucible import MLPlatform
from crucible.client.compat import ExecutionStrategy, LocalExecutor
from crucible.core.errors import BadInput, UnknownName

pytestmark = pytest.mark.enable_socket

ID = f"local-{JOB}-4711"


@pytest.fixture
def local(platform: MLPlatform) -> LocalExecutor:
    return LocalExecutor(platform)


@pytest.fixture
def aws(platform: MLPlatform) -> ExecutionStrategy:
    return ExecutionStrategy("aws", platform)


async def test_whether_a_backend_can_execute(platform: MLPlatform, server: FakeServer) -> None:
    assert await LocalExecutor(platform).can_execute()
    assert not await LocalExecutor(platform, needs_gpu=True).can_execute()
    assert await ExecutionStrategy("aws", platform, needs_gpu=True).can_execute()
    assert not await ExecutionStrategy("nosuch", platform).can_execute()
    server.backends[0]["offers"][0]["runnable"] = False
    assert not await LocalExecutor(platform).can_execute()


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
    local: LocalExecutor, server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "yolo.py").write_text("print(1)\n")
    server.ends_as = completed(execution_id=ID)
    config = {"epochs": 3, "requirements": {"cpus": 1}}
    assert await local.submit_job(7, "yolo.py", config) == ID
    (spec,) = server.specs
    assert spec["command"][:-1] == ["{python}", "yolo.py", "--job-id", "7", "--model", "yolo", "--config"]
    assert json.loads(spec["command"][-1]) == {"epochs": 3}
    assert (spec["backend"], spec["resources"]["cpus"], spec["tags"]) == ("local", 1, ["training-7"])


async def test_without_a_process_in_time_the_id_ends_with_zero(
    platform: MLPlatform, server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "yolo.py").write_text("print(1)\n")
    server.jobs[JOB] = job_view(status="queued", phase="queued")
    server.acts = [([], 0)]
    executor = ExecutionStrategy("local", platform, start_seconds=0.05)
    assert await executor.submit_job(7, "yolo.py", {}) == f"local-{JOB}-0"


@pytest.mark.parametrize("config", [[], {"x": object()}, {"requirements": {"gpus": -1}}])
async def test_a_config_that_is_none(local: LocalExecutor, config: Any) -> None:
    with pytest.raises(BadInput):
        await local.submit_job(7, "yolo.py", config)


@pytest.mark.parametrize(
    ("view", "status", "code"),
    [
        (job_view(), "running", None),
        (job_view(status="queued", phase="queued"), "running", None),
        (completed(), "completed", 0),
        (failed(3), "failed", 3),
        (completed(status="cancelled", phase="cancelled", exit_code=None, signal=15), "failed", -15),
    ],
)
async def test_statuses(local: LocalExecutor, server: FakeServer, view: Any, status: str, code: int | None) -> None:
    server.jobs[JOB] = view
    found = await local.get_status(ID)
    assert (found["status"], found.get("return_code"), found["phase"]) == (status, code, view["phase"])
    assert found["started_at"]


@pytest.mark.parametrize("id", ["local-job-nosuch-1", "nonsense", "local-4711", "", None, 7])
async def test_who_is_not_there(local: LocalExecutor, id: Any) -> None:
    assert await local.get_status(id) == {"status": "not_found"}
    assert await local.get_logs(id) == ""
    assert await local.get_metrics(id) == {}
    await local.cancel_job(id)


async def test_cancel_logs_and_metrics(local: LocalExecutor, server: FakeServer) -> None:
    server.jobs[JOB], server.log = job_view(), b"one\ntwo\n"
    assert await local.get_logs(ID) == "one\ntwo\n"
    assert await local.get_logs(ID, offset=4) == "two\n"
    assert await local.get_metrics(ID) == {"loss": 0.5}
    await local.cancel_job(ID)
    assert server.jobs[JOB]["status"] == "cancelled"
    with pytest.raises(BadInput, match="offset"):
        await local.get_logs(ID, offset=-1)
