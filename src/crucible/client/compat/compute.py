"""The first document's backend interface: launch, status, run, download, terminate. Blocking."""

from __future__ import annotations

import uuid
from pathlib import Path

from crucible.client.compat.types import JobConfig, as_requirements
from crucible.client.request.pythons import SubmitHost
from crucible.client.request.submit_options import read_keywords
from crucible.client.sdk import downloads
from crucible.client.sdk.blocking import SyncJob, SyncMLPlatform
from crucible.client.sdk.results import result_of
from crucible.client.sdk.status import JobStatus
from crucible.core.errors import BadInput, NotFound
from crucible.core.job.spec import EnvironmentSpec, JobSpec
from crucible.core.views.jobs import JobView


class ComputeBackend:
    """One backend of a server; ids are job ids."""

    def __init__(self, backend: str, platform: SyncMLPlatform | None = None) -> None:
        self.backend = backend
        self._platform = platform or SyncMLPlatform()

    def launch(self, config: JobConfig) -> str:
        """Submit the job to this backend and return its id."""
        if not isinstance(config, JobConfig):
            raise BadInput(
                "launch takes a JobConfig.", why=f"It is {config!r}."[:200], fix="JobConfig(path='train.py')"
            )
        request = read_keywords(
            SubmitHost.current(),
            path=config.path,
            shell=config.command,
            args=config.arguments(),
            requirements=as_requirements(config.requirements),
            kind=config.job_type,
            name=config.name,
            env=config.env,
            data=config.inputs(),
            places=[self.backend],
        )
        return self._platform.submit_job(*request).id

    def status(self, job_id: str) -> JobStatus:
        return self._job(job_id).status()

    def run(self, job_id: str, command: str) -> None:
        """Run a shell command with the files of that job, on its backend, to its end. Raises JobFailed if it fails.

        It runs as a separate job: it has the same code, but not the other job's processes or outputs.
        """
        view = self._job(job_id).view
        spec = _beside(view, _text("command", command))
        job = SyncJob(self._platform, self._platform.api.submit(spec, key=uuid.uuid4().hex))
        result_of(self._platform.api, job.wait())

    def download(self, job_id: str, remote_path: str, local_path: str | Path) -> None:
        """Download a file of the job to this path, or the content of a folder, replacing existing files.

        `remote_path` is relative to $CRUCIBLE_OUTPUT_DIR. A `local_path` that is a folder or ends with a slash is where
        the file goes.
        """
        job = self._job(job_id)
        path = _text("remote_path", remote_path).strip("/")
        for item in downloads.select_artifacts(self._platform.api.artifacts(job.id), [path]):
            target = Path(local_path)
            name = item.path.removeprefix(f"{path}/")
            if item.path == path and not target.is_dir() and not str(local_path).endswith("/"):
                target, name = target.parent, target.name
            downloads.download_as(self._platform.api, job.id, item, target, name)

    def terminate(self, job_id: str) -> None:
        """Cancel the job and wait until it has ended; idempotent."""
        job = self._job(job_id)
        if not job.cancel().ended:
            job.wait()

    def _job(self, job_id: str) -> SyncJob:
        job = self._platform.job(job_id)
        if job.view.backend != self.backend:
            raise NotFound(
                f"{self.backend} has no job {job_id}.",
                why=f"It runs on {job.view.backend}.",
                fix=f"Use ComputeBackend({job.view.backend!r}).",
            )
        return job


def get_backend(name: str, platform: SyncMLPlatform | None = None) -> ComputeBackend:
    return ComputeBackend(name, platform)


def _beside(view: JobView, command: str) -> JobSpec:
    return JobSpec(
        command=("/bin/sh", "-c", command),
        bundle=view.bundle,
        environment=EnvironmentSpec.model_validate(view.environment.as_json()),
        backend=view.backend,
        name=f"beside {view.display_name}",
    )


def _text(field: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        why, fix = f"It is {value!r}."[:200], f"Pass {field} as text."
        raise BadInput(f"{field} must be text that is not empty.", why=why, fix=fix, field=field)
    return value
