"""The documents' training request of a tenant, and the client that submits and watches it. It blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crucible.client.asking import Ask
from crucible.client.blocking import SyncJob, SyncMLPlatform
from crucible.client.compat.types import ResourceRequirements, as_requirements
from crucible.client.requirements import Requirements
from crucible.client.status import JobStatus
from crucible.client.views import JobView
from crucible.core.errors import BadInput


@dataclass(frozen=True)
class TrainingJobRequest:
    """What a tenant asks to train. The parameters go as JSON, so they are numbers, texts, lists and tables."""

    tenant_id: str
    training_params: Mapping[str, object] = field(default_factory=dict)
    model_params: Mapping[str, object] = field(default_factory=dict)
    custom_name: str | None = None
    wandb_tags: Sequence[str] = ()

    def __post_init__(self) -> None:
        _texts(tenant_id=self.tenant_id, **({} if self.custom_name is None else {"custom_name": self.custom_name}))
        object.__setattr__(self, "wandb_tags", _tags(self.wandb_tags))
        _as_json("training_params", self.training_params)
        _as_json("model_params", self.model_params)

    def env(self) -> dict[str, str]:
        """How the training program hears of it. The WANDB ones are those that Weights & Biases reads itself."""
        said = {
            "TENANT_ID": self.tenant_id,
            "TRAINING_PARAMS": _as_json("training_params", self.training_params),
            "MODEL_PARAMS": _as_json("model_params", self.model_params),
            "WANDB_NAME": self.custom_name or "",
            "WANDB_TAGS": ",".join(self.wandb_tags),
        }
        return {name: value for name, value in said.items() if value}


@dataclass(frozen=True)
class TrainingStatus:
    """As the documents answer it; `progress` has epoch, total_epochs, progress_percent and message."""

    task_id: str
    status: str
    created_at: str | None
    progress: Mapping[str, object]
    error: str | None = None


class TrainingClient:
    """Submits requests to one training program and watches what becomes of them.

    `worker` is the program: a script, folder or notebook that reads $TRAINING_PARAMS and $MODEL_PARAMS.
    """

    def __init__(
        self,
        worker: str | Path,
        platform: SyncMLPlatform | None = None,
        *,
        requirements: Requirements | ResourceRequirements | None = None,
    ) -> None:
        self._worker = worker
        self._platform = platform or SyncMLPlatform()
        self._requirements = as_requirements(requirements)

    def submit(self, request: TrainingJobRequest) -> str:
        """Submit it; returns the task's id."""
        if not isinstance(request, TrainingJobRequest):
            raise BadInput("submit takes a TrainingJobRequest.", fix="TrainingJobRequest(tenant_id='me')")
        ask = Ask.of(
            path=self._worker,
            requirements=self._requirements,
            name=request.custom_name,
            env=request.env(),
            tags=[f"tenant:{request.tenant_id}", *request.wandb_tags],
        )
        return self._platform.send(ask).id

    def status(self, task_id: str) -> TrainingStatus:
        job = self._platform.job(task_id)
        return _shown(job.view, job.status())

    def monitor(self, task_id: str) -> Iterator[TrainingStatus]:
        """A status whenever something is new, to the end."""
        job = self._platform.job(task_id)
        return (_shown(job.view, status) for status in job.monitor())

    def wait(self, task_id: str, timeout: float | None = None) -> TrainingStatus:
        job = self._platform.job(task_id)
        return _shown(job.view, job.wait(timeout))

    def cancel(self, task_id: str) -> TrainingStatus:
        job = self._platform.job(task_id)
        return _shown(job.view, job.cancel())

    def job(self, task_id: str) -> SyncJob:
        """The job itself, with all that can be asked of it."""
        return self._platform.job(task_id)


def _shown(view: JobView, status: JobStatus) -> TrainingStatus:
    progress = {
        "epoch": status.epoch,
        "total_epochs": status.total_epochs,
        "progress_percent": status.progress,
        "message": status.message,
    }
    failed = status.message if status.state == "failed" else None
    return TrainingStatus(status.id, status.state.value, view.created_at, progress, failed)


def _texts(**said: object) -> None:
    for name, value in said.items():
        if not isinstance(value, str) or not value.strip():
            raise _wrong(name, "is a text that is not empty")


def _tags(said: object) -> tuple[str, ...]:
    if isinstance(said, str) or not isinstance(said, Sequence) or not all(isinstance(tag, str) for tag in said):
        raise _wrong("wandb_tags", "is a list of texts")
    if any("," in tag or not tag.strip() for tag in said):
        raise _wrong("wandb_tags", "holds tags that are not empty and have no commas")
    return tuple(said)


def _as_json(field: str, said: object) -> str:
    if not isinstance(said, Mapping):
        raise _wrong(field, "is a table")
    try:
        return json.dumps(dict(said))
    except (TypeError, ValueError) as error:
        raise BadInput(f"{field} cannot travel.", why=f"{error}. It goes as JSON.", field=field) from error


def _wrong(field: str, rule: str) -> BadInput:
    return BadInput(f"{field} {rule}.", fix=f"Mend {field} of the TrainingJobRequest.", field=field)
