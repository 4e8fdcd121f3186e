from __future__ import annotations

import pytest

from crucible.client import compat
from crucible.client.compat.types import as_requirements
from crucible.client.request.requirements import Requirements
from crucible.core.compute.offers import Market
from crucible.core.errors import BadInput
from crucible.core.views.compute import MachineView

NAMED = (
    "JobConfig TrainJobConfig JobType JobStatus JobHandle ResourceRequirements WorkloadCharacteristics UserPreferences "
    "BackendRecommendation CostEstimate AvailabilityStatus MLJob DistributedMLJob DistributedJobHandle ResourceTier "
    "EC2Instance EC2StorageConfig ModalStorageConfig S3StorageConfig TrainingJobRequest"
)


@pytest.mark.parametrize("name", NAMED.split())
def test_the_names_of_the_documents_are_there(name: str) -> None:
    assert name in compat.__all__
    assert getattr(compat, name) is not None


def test_job_types() -> None:
    assert [kind.value for kind in compat.JobType] == ["train", "inference", "benchmark", "serve"]


@pytest.mark.parametrize(
    ("name", "backend_name", "market"),
    [("ec2_spot", "aws", Market.SPOT), ("ec2_ondemand", "aws", Market.ON_DEMAND), ("lambda", "lambda", None)],
)
def test_the_documents_backends_are_places_here(name: str, backend_name: str, market: Market | None) -> None:
    backend = compat.ExecutionBackend(name)
    assert (backend.backend_name, backend.market) == (backend_name, market)


def test_tiers_have_the_documents_tables() -> None:
    assert compat.ResourceTier["CPU_SMALL"].value == {
        "memory": "512Mi",
        "cpu": "0.5",
        "timeout": 30,
        "cost_per_hour": 0.02,
    }
    assert compat.ResourceTier["GPU_SMALL"].value == {
        "memory": "16Gi",
        "cpu": "4",
        "gpu": "1",
        "timeout": 7200,
        "cost_per_hour": 0.526,
        "instance_type": "g4dn.xlarge",
    }


def test_resource_requirements_become_requirements() -> None:
    needs = compat.ResourceRequirements(gpus=1, timeout_seconds=7200, interruptible=True)
    assert as_requirements(needs) == Requirements(gpus=1, time_limit_hours=2, interruptible=True)
    assert as_requirements(None) == as_requirements({}) == Requirements()
    with pytest.raises(BadInput, match="timeout_seconds must be at least 1"):
        as_requirements(compat.ResourceRequirements(timeout_seconds=0))


def test_characteristics_become_requirements() -> None:
    workload = compat.WorkloadCharacteristics(
        duration_hours=3,
        gpu_memory_gb=16,
        interruptible=True,
        checkpoint_frequency=30,
        estimated_cost_tolerance=10,
    )
    assert workload.requirements() == Requirements(
        gpu_memory_gb=16,
        duration_hours_estimated=3,
        checkpoint_frequency_minutes=30,
        interruptible=True,
        max_cost_usd=10,
    )


def test_a_machine_as_an_instance() -> None:
    machine = MachineView(id="mch-1", native_id="i-1", instance_type="t4", region="north", market="spot", state="up")
    assert compat.EC2Instance.of(machine) == compat.EC2Instance("i-1", "t4", "north", "spot", "up")


def test_training_on_a_capture() -> None:
    config = compat.TrainJobConfig(path="t.py", args=("-v",), capture="/data/c", goal="win", config="a.yaml")
    assert config.inputs() == {"capture": "/data/c"}
    assert config.arguments() == ("-v", "--goal", "win", "--config", "a.yaml")
    with pytest.raises(BadInput, match="TRAIN"):
        compat.TrainJobConfig(job_type=compat.JobType.SERVE)
