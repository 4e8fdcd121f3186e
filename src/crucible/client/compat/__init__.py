"""The interfaces and names of the design documents that preceded Crucible, on top of its client."""

from crucible.client.compat.compute import ComputeBackend, get_backend
from crucible.client.compat.gpu import GPUExecutor, JobHandle, PipelinesComeLater
from crucible.client.compat.router import WorkloadRouter
from crucible.client.compat.strategy import ExecutionStrategy, LocalExecutor
from crucible.client.compat.training import AsyncTrainingClient, TrainingClient, TrainingJobRequest, TrainingStatus
from crucible.client.compat.types import (
    AvailabilityStatus,
    BackendRecommendation,
    CostEstimate,
    DistributedJobHandle,
    DistributedMLJob,
    EC2Instance,
    EC2StorageConfig,
    ExecutionBackend,
    JobConfig,
    JobType,
    MLJob,
    ModalStorageConfig,
    ResourceRequirements,
    ResourceTier,
    S3StorageConfig,
    TrainJobConfig,
    UserPreferences,
    WorkloadCharacteristics,
)
from crucible.client.sdk.status import JobStatus

__all__ = [
    "AsyncTrainingClient",
    "AvailabilityStatus",
    "BackendRecommendation",
    "ComputeBackend",
    "CostEstimate",
    "DistributedJobHandle",
    "DistributedMLJob",
    "EC2Instance",
    "EC2StorageConfig",
    "ExecutionBackend",
    "ExecutionStrategy",
    "GPUExecutor",
    "JobConfig",
    "JobHandle",
    "JobStatus",
    "JobType",
    "LocalExecutor",
    "MLJob",
    "ModalStorageConfig",
    "PipelinesComeLater",
    "ResourceRequirements",
    "ResourceTier",
    "S3StorageConfig",
    "TrainJobConfig",
    "TrainingClient",
    "TrainingJobRequest",
    "TrainingStatus",
    "UserPreferences",
    "WorkloadCharacteristics",
    "WorkloadRouter",
    "get_backend",
]
