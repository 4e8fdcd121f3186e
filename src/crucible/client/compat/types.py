"""The types of the documents, as values on top of Crucible's own."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from crucible.client.request.checks import check_number
from crucible.client.request.requirements import Preferences, Requirements
from crucible.core.compute.offers import Availability, Market
from crucible.core.compute.resources import MAX_SECONDS, format_memory
from crucible.core.compute.tiers import TIERS
from crucible.core.errors import BadInput
from crucible.core.job.spec import Kind
from crucible.core.routing.profile import Confidence
from crucible.core.views.compute import MachineView

if TYPE_CHECKING:
    from crucible.client.sdk.platform import Job

JobType = Kind
UserPreferences = Preferences


class ExecutionBackend(enum.Enum):
    """The backends of the documents, each with the backend of this server and the market of its machines."""

    LOCAL = "local"
    REHEARSAL = "rehearsal"
    MODAL = "modal"
    PAPERSPACE = "paperspace"
    LAMBDA_LABS = "lambda"
    EC2_ONDEMAND = "ec2_ondemand"
    EC2_SPOT = "ec2_spot"
    COLAB = "colab"
    AZURE = "azure"
    AWS = "aws"
    GCP = "gcp"

    @property
    def backend_name(self) -> str:
        return "aws" if self.value.startswith("ec2_") else self.value

    @property
    def market(self) -> Market | None:
        return {"ec2_spot": Market.SPOT, "ec2_ondemand": Market.ON_DEMAND}.get(self.value)


def _tier_values() -> dict[str, dict[str, object]]:
    tiers: dict[str, dict[str, object]] = {}
    for tier in TIERS.values():
        size = tier.resources
        values = {
            "memory": format_memory(size.memory_bytes or 0).replace(" ", "").removesuffix("B"),
            "cpu": f"{size.cpus or 0:g}",
            "gpu": str(size.gpus) if size.gpus else None,
            "timeout": int(size.seconds or 0),
            "cost_per_hour": tier.rate / 1e6,
            "instance_type": tier.instance_type or None,
        }
        tiers[tier.id] = {name: value for name, value in values.items() if value is not None}
    return tiers


ResourceTier = enum.Enum("ResourceTier", _tier_values())  # type: ignore[misc]
"""The tiers, each with the values that the documents give it."""


@dataclass(frozen=True)
class ResourceRequirements:
    """What a job needs; `timeout_seconds` is its time limit. Checked when it is converted to `Requirements`."""

    gpu_memory_gb: float | None = None
    gpus: int | None = None
    cpus: float | None = None
    memory_gb: float | None = None
    timeout_seconds: float | None = None
    interruptible: bool = False

    def requirements(self) -> Requirements:
        check_number("timeout_seconds", self.timeout_seconds, 1, MAX_SECONDS)
        return Requirements(
            gpu_memory_gb=self.gpu_memory_gb,
            gpus=self.gpus,
            cpus=self.cpus,
            memory_gb=self.memory_gb,
            interruptible=self.interruptible,
            time_limit_hours=None if self.timeout_seconds is None else self.timeout_seconds / 3600,
        )


@dataclass(frozen=True)
class WorkloadCharacteristics:
    """What a workload is like. `checkpoint_frequency` is in minutes, `estimated_cost_tolerance` in dollars."""

    duration_hours: float
    gpu_memory_gb: float = 0
    interruptible: bool = False
    needs_persistent_storage: bool = False
    dataset_size_gb: float = 0
    checkpoint_frequency: float | None = None
    estimated_cost_tolerance: float | None = None

    def requirements(self) -> Requirements:
        return Requirements(
            gpu_memory_gb=self.gpu_memory_gb or None,
            duration_hours_estimated=self.duration_hours,
            checkpoint_frequency_minutes=self.checkpoint_frequency,
            interruptible=self.interruptible,
            max_cost_usd=self.estimated_cost_tolerance,
        )


@dataclass(frozen=True)
class CostEstimate:
    """Dollars per hour and in total. Confidence is high for free machines, low for spot prices."""

    hourly: float
    total: float
    confidence: Confidence


@dataclass(frozen=True)
class AvailabilityStatus:
    """`wait_time` in seconds until a machine is up; None: unknown."""

    status: Availability
    wait_time: float | None = None


@dataclass(frozen=True)
class BackendRecommendation:
    """A backend and its best offer; `score` is from 0 to 1."""

    backend: str
    score: float
    cost_estimate: CostEstimate
    availability: AvailabilityStatus
    pros: tuple[str, ...] = ()
    cons: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobConfig:
    """A job for one backend: a script, notebook, folder (`path`) or a shell `command`."""

    path: str | Path | None = None
    command: str | None = None
    args: tuple[object, ...] = ()
    job_type: JobType = JobType.TRAIN
    requirements: Requirements | ResourceRequirements | None = None
    name: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str | Path] = field(default_factory=dict)

    def inputs(self) -> dict[str, str | Path]:
        return dict(self.data)

    def arguments(self) -> tuple[object, ...]:
        return self.args


@dataclass(frozen=True)
class TrainJobConfig(JobConfig):
    """Training on a recorded `capture`, which the job finds in $CRUCIBLE_DATA_DIR/capture.

    `goal` and `config` are passed to the script as `--goal` and `--config`.
    """

    capture: str | Path | None = None
    goal: str | None = None
    config: str | None = None

    def __post_init__(self) -> None:
        if self.job_type is not JobType.TRAIN:
            raise BadInput("A TrainJobConfig has the job_type TRAIN.", fix="Use JobConfig.", field="job_type")

    def inputs(self) -> dict[str, str | Path]:
        return {**self.data, **({"capture": self.capture} if self.capture is not None else {})}

    def arguments(self) -> tuple[object, ...]:
        goal = ("--goal", self.goal) if self.goal is not None else ()
        config = ("--config", self.config) if self.config is not None else ()
        return (*self.args, *goal, *config)


@dataclass(frozen=True)
class MLJob:
    """Code and what it needs; `id` once it was submitted."""

    code: str
    requirements: Requirements | ResourceRequirements = Requirements()
    id: str | None = None


@dataclass(frozen=True)
class DistributedMLJob:
    """Three parts that follow each other, each with its own requirements."""

    preprocessing_code: str
    training_code: str
    evaluation_code: str
    preprocessing_requirements: Requirements | ResourceRequirements = Requirements()
    training_requirements: Requirements | ResourceRequirements = Requirements()
    eval_requirements: Requirements | ResourceRequirements = Requirements()


@dataclass(frozen=True)
class DistributedJobHandle:
    preprocessing: Job
    training: Job
    evaluations: tuple[Job, ...] = ()


@dataclass(frozen=True)
class EC2Instance:
    """A machine of a provider that calls its machines instances."""

    id: str
    instance_type: str | None = None
    region: str | None = None
    market: str | None = None
    state: str = ""

    @classmethod
    def of(cls, machine: MachineView) -> EC2Instance:
        id = machine.native_id or machine.id
        return cls(id, machine.instance_type, machine.region, machine.market, machine.state)


@dataclass(frozen=True)
class S3StorageConfig:
    """Where files of a job are. Crucible ignores it: files are in the server's store."""

    bucket: str
    prefix: str
    presigned_urls: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class EC2StorageConfig:
    ebs_volume_id: str
    s3_bucket: str
    s3_prefix: str


@dataclass(frozen=True)
class ModalStorageConfig:
    shared_volume_name: str
    s3_bucket: str
    s3_prefix: str
    s3_sync_enabled: bool = True


def as_requirements(needs: Requirements | ResourceRequirements | Mapping[str, object] | None) -> Requirements:
    return needs.requirements() if isinstance(needs, ResourceRequirements) else Requirements.from_value(needs)
