"""The result of a job, and the errors for jobs that did not complete."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from crucible.client.api import Api
from crucible.client.payload.function import RESULT
from crucible.client.sdk.status import JobStatus
from crucible.core.errors import CrucibleError, Trouble
from crucible.core.views.jobs import CheckpointMark
from crucible.core.views.records import ArtifactView

LARGEST_VALUE = 16 * 1024 * 1024


class JobFailed(CrucibleError):
    """The job ended without completing; `status` says how."""

    code = "job_failed"
    exit_code = 1
    http_status = 409

    def __init__(self, status: JobStatus) -> None:
        why = status.message or status.phase.value
        fix = status.advice or f"Look at its output: crucible logs {status.id}"
        data: dict[str, object] = {"id": status.id, "exit_code": status.exit_code, "reason": status.reason}
        super().__init__(f"The job {status.id} {self._outcome(status)}.", why=why, fix=fix, **data)
        self.status = status

    def _outcome(self, status: JobStatus) -> str:
        return f"failed with exit code {status.exit_code}" if status.exit_code else "failed"


class JobCancelled(JobFailed):
    """A user cancelled the job."""

    code = "job_cancelled"

    def _outcome(self, status: JobStatus) -> str:
        return "was cancelled"


@dataclass(frozen=True)
class JobResult:
    """`value` is what a function returned, or what the program reported with `crucible.result`; None: neither.

    `files` are the artifacts, `metrics` the last values.
    """

    status: JobStatus
    value: object = None
    files: tuple[ArtifactView, ...] = ()
    metrics: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def checkpoint(self) -> CheckpointMark | None:
        return self.status.checkpoint


def result_of(api: Api, status: JobStatus) -> JobResult:
    """Return the result of a job that has ended. Raises JobFailed or JobCancelled unless it completed."""
    if status.state == "cancelled":
        raise JobCancelled(status)
    if status.state != "completed":
        raise JobFailed(status)
    files = api.artifacts(status.id)
    returned = next((file for file in files if file.path == RESULT), None)
    value = _reported_value(api, status.id) if returned is None else _returned_value(api, status.id, returned)
    return JobResult(status, value, tuple(file for file in files if file.path != RESULT), status.metrics)


def _reported_value(api: Api, job: str) -> object:
    result = api.job(job).result
    return None if result is None else result.value


def _returned_value(api: Api, job: str, file: ArtifactView) -> object:
    if file.size > LARGEST_VALUE:
        raise Trouble(
            f"The value that the function returned is {file.size:,} bytes.",
            why=f"Values are limited to {LARGEST_VALUE:,} bytes.",
            fix=f"Download it as a file: job.download('.', {RESULT!r}).",
        )
    answer = api.transport.request("GET", api.artifact_path(job, file.path))
    try:
        return json.loads(answer.content)
    except ValueError as error:
        raise Trouble(f"{file.path} of {job} is not JSON.", why=str(error), fix="Download it as a file.") from error
