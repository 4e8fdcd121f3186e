from __future__ import annotations

import pytest
from tests.client.compat.conftest import FakeAws
from tests.client.real_server import RealServer

from crucible import Job, MLPlatform
from crucible.client.compat import (
    ExecutionBackend,
    GPUExecutor,
    MLJob,
    PipelinesComeLater,
    ResourceRequirements,
    WorkloadCharacteristics,
)
from crucible.core.compute.offers import Market
from crucible.core.errors import BadInput, Conflict, NoCapacity, UnknownName

pytestmark = pytest.mark.enable_socket

WORKLOAD = WorkloadCharacteristics(duration_hours=10, gpu_memory_gb=16)


@pytest.fixture
def spot(platform: MLPlatform) -> GPUExecutor:
    return GPUExecutor(ExecutionBackend.EC2_SPOT, platform)


@pytest.fixture
def on_demand(platform: MLPlatform) -> GPUExecutor:
    return GPUExecutor(ExecutionBackend.EC2_ONDEMAND, platform)


async def test_code_and_requirements_become_a_handle(spot: GPUExecutor, real: RealServer) -> None:
    handle = await spot.submit_job("print(1)", ResourceRequirements(gpu_memory_gb=16, timeout_seconds=60))
    assert isinstance(handle, Job)
    assert handle.id == real.last.id
    (spec,) = real.specs
    assert (spec["backend"], spec["market"], spec["resources"]["gpus"]) == ("aws", "spot", 1)
    assert spec["resources"]["seconds"] == 60


async def test_a_job_brings_its_own_requirements(on_demand: GPUExecutor, real: RealServer) -> None:
    await on_demand.submit_job(MLJob("print(1)", ResourceRequirements(cpus=1, interruptible=True)))
    assert (real.specs[0]["resources"]["cpus"], real.specs[0]["market"]) == (1, None)


async def test_a_job_goes_on_here_from_its_checkpoint(spot: GPUExecutor, real: RealServer) -> None:
    job = real.start()
    real.run(job.checkpoint, "step_00000600.pt", b"weights", 600)
    real.run(job.end, 1)
    handle = await spot.submit_job(MLJob("print(1)", id=job.id), resume_from_checkpoint=True)
    assert real.sent[-1] == (f"/api/v1/jobs/{job.id}/resume", {"backend": "aws"})
    assert (handle.id, handle.view.backend) == (job.id, "aws")


async def test_only_a_job_that_was_submitted_and_has_ended_goes_on(spot: GPUExecutor, real: RealServer) -> None:
    with pytest.raises(BadInput, match="submitted before"):
        await spot.submit_job("print(1)", resume_from_checkpoint=True)
    job = real.start().id
    with pytest.raises(Conflict, match="has not ended"):
        await spot.submit_job(MLJob("print(1)", id=job), resume_from_checkpoint=True)


async def test_depends_on_says_that_pipelines_come_later(spot: GPUExecutor, real: RealServer) -> None:
    with pytest.raises(PipelinesComeLater, match="then submit the second"):
        await spot.submit_job("print(1)", depends_on=object())
    assert not real.specs


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


async def test_availability(spot: GPUExecutor, real: RealServer, aws_backend: FakeAws) -> None:
    found = await spot.check_availability()
    assert (found.status, found.wait_time) == ("available", 60)
    aws_backend.sold_out = {Market.SPOT}
    real.run(real.harness.offers.refresh)
    assert (await spot.check_availability()).status == "limited"
    assert (await spot.check_availability()).wait_time is None
