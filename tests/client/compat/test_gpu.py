from __future__ import annotations

import pytest
from tests.client.fake_server import JOB, FakeServer, completed, job_view

from crucible import Job, MLPlatform
from crucible.client.compat import (
    ExecutionBackend,
    GPUExecutor,
    MLJob,
    PipelinesComeLater,
    ResourceRequirements,
    WorkloadCharacteristics,
)
from crucible.core.errors import BadInput, Conflict, NoCapacity, UnknownName

pytestmark = pytest.mark.enable_socket

WORKLOAD = WorkloadCharacteristics(duration_hours=10, gpu_memory_gb=16)


@pytest.fixture
def spot(platform: MLPlatform) -> GPUExecutor:
    return GPUExecutor(ExecutionBackend.EC2_SPOT, platform)


@pytest.fixture
def on_demand(platform: MLPlatform) -> GPUExecutor:
    return GPUExecutor(ExecutionBackend.EC2_ONDEMAND, platform)


async def test_code_and_requirements_become_a_handle(spot: GPUExecutor, server: FakeServer) -> None:
    handle = await spot.submit_job("print(1)", ResourceRequirements(gpu_memory_gb=16, timeout_seconds=60))
    assert isinstance(handle, Job)
    assert handle.id == JOB
    (spec,) = server.specs
    assert (spec["backend"], spec["market"], spec["resources"]["gpus"]) == ("aws", "spot", 1)
    assert spec["resources"]["seconds"] == 60


async def test_a_job_brings_its_own_requirements(on_demand: GPUExecutor, server: FakeServer) -> None:
    await on_demand.submit_job(MLJob("print(1)", ResourceRequirements(cpus=1, interruptible=True)))
    assert (server.specs[0]["resources"]["cpus"], server.specs[0]["market"]) == (1, None)


async def test_a_job_goes_on_here_from_its_checkpoint(spot: GPUExecutor, server: FakeServer) -> None:
    server.jobs[JOB] = completed()
    handle = await spot.submit_job(MLJob("print(1)", id=JOB), resume_from_checkpoint=True)
    assert server.bodies[-1] == (f"/api/v1/jobs/{JOB}/resume", {"backend": "aws"})
    assert (handle.id, handle.view.backend) == (JOB, "aws")


async def test_only_a_job_that_was_submitted_and_has_ended_goes_on(spot: GPUExecutor, server: FakeServer) -> None:
    with pytest.raises(BadInput, match="submitted before"):
        await spot.submit_job("print(1)", resume_from_checkpoint=True)
    server.jobs[JOB] = job_view()
    with pytest.raises(Conflict, match="has not ended"):
        await spot.submit_job(MLJob("print(1)", id=JOB), resume_from_checkpoint=True)


async def test_depends_on_says_that_pipelines_come_later(spot: GPUExecutor, server: FakeServer) -> None:
    with pytest.raises(PipelinesComeLater, match="then submit the second"):
        await spot.submit_job("print(1)", depends_on=object())
    assert not server.specs


async def test_estimates(spot: GPUExecutor, on_demand: GPUExecutor, platform: MLPlatform) -> None:
    dear, cheap = await on_demand.estimate_cost(WORKLOAD), await spot.estimate_cost(WORKLOAD)
    assert (dear.hourly, dear.total, dear.confidence) == (0.5, 5.0, "medium")
    assert (cheap.hourly, cheap.total, cheap.confidence) == (0.2, 2.0, "low")
    free = await GPUExecutor("local", platform).estimate_cost(WorkloadCharacteristics(duration_hours=1))
    assert (free.hourly, free.total, free.confidence) == (0.0, 0.0, "high")
    with pytest.raises(NoCapacity):
        await GPUExecutor("local", platform).estimate_cost(WORKLOAD)
    with pytest.raises(UnknownName, match="modal"):
        await GPUExecutor(ExecutionBackend.MODAL, platform).estimate_cost(WORKLOAD)


async def test_availability(spot: GPUExecutor, server: FakeServer) -> None:
    found = await spot.check_availability()
    assert (found.status, found.wait_time) == ("available", 60)
    server.backends[1]["offers"][1]["runnable"] = False
    assert (await spot.check_availability()).status == "limited"
    assert (await spot.check_availability()).wait_time is None
