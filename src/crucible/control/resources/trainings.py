"""Training jobs, in the terms of the training routes."""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
from collections.abc import AsyncIterator, Mapping

from sqlalchemy import Connection, bindparam, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.jobs import queries
from crucible.control.objects.bundles import Bundles
from crucible.control.resources.checkpoints import Checkpoints
from crucible.control.resources.jobs import Jobs, SubmittedJob
from crucible.control.resources.models import Models
from crucible.control.resources.people import People
from crucible.control.runtime.ports import Ports
from crucible.core.errors import NotFound
from crucible.core.health import SYSTEM
from crucible.core.ids import ALPHABET
from crucible.core.job.spec import DEFAULT_BACKEND, JobSpec
from crucible.core.job.training import (
    PreparedJob,
    TrainingRequest,
    job_fields,
    model_order,
    no_model_plugin,
    prepare_job,
    read_config,
)
from crucible.core.people.identity import Identity
from crucible.core.requests import TrainingResumption
from crucible.core.views.jobs import JobView, ProgressView
from crucible.core.views.training import ExecutionView, RecordView
from crucible.wire.files.archive import Entry, pack

_JOB = re.compile(rf"job-[{ALPHABET}]{{26}}")
_SPEC = Statement(select(t.jobs.c.spec, t.jobs.c.project).where(t.jobs.c.id == bindparam("job")))


class Trainings:
    """Jobs as training tasks. `ref` names a job, or is an execution's id (`local-job-...-4711`)."""

    def __init__(
        self, ports: Ports, jobs: Jobs, checkpoints: Checkpoints, bundles: Bundles, models: Models, people: People
    ) -> None:
        self._ports = ports
        self._jobs = jobs
        self._checkpoints = checkpoints
        self._bundles = bundles
        self._models = models
        self._people = people

    async def submit(self, who: Identity, request: TrainingRequest, key: str | None) -> SubmittedJob:
        """Store the request's program, its project if an administrator names a new one, and the job.

        Raises BadInput if the request has no program and its model is not a plugin. `key` as in `Jobs.submit`.
        """
        prepared = await self._prepare(who, request)
        spec = prepared.spec
        if prepared.files:
            spec = spec.model_copy(update={"bundle": await self._store_program(who, prepared.files)})
        if prepared.project is not None:
            await self._people.ensure_project(who, prepared.project)
            spec = spec.model_copy(update={"project": prepared.project})
        return await self._jobs.submit(who, spec, key)

    async def record(self, who: Identity, ref: str) -> RecordView:
        """Return the job as a training record: model, config, status, current epoch and metrics."""
        job, now = await self._jobs.find(who, job_ref(ref)), self._ports.clock.now()
        return await self._ports.db.read(lambda conn: _record(conn, job, now))

    async def resume(self, who: Identity, ref: str, request: TrainingResumption) -> ExecutionView:
        """Reopen a job that has ended, from the named checkpoint (default: the newest that is kept).

        Raises as `Jobs.resume` does.
        """
        job = await self._jobs.find(who, job_ref(ref))
        kept = [item for item in (await self._checkpoints.list_checkpoints(who, job)).items if item.kept]
        start = request.checkpoint or (kept[0].id if kept else None)
        view = await self._jobs.resume(who, job, request.model_copy(update={"checkpoint": start}))
        return ExecutionView(job_id=job, execution_id=execution_id(view), resume_from=start)

    async def _prepare(self, who: Identity, request: TrainingRequest) -> PreparedJob:
        """Return the spec of the program in the request, or else of the model plugin that it names."""
        order = model_order(request)
        if order is None:
            return prepare_job(request)
        wishes = {name: value for name, value in job_fields(request).items() if name != "environment"}
        try:
            return PreparedJob(await self._models.job_spec(who, order, wishes), project=request.tenant_id)
        except NotFound as error:
            raise no_model_plugin(request, error.fix) from error

    async def _store_program(self, who: Identity, files: Mapping[str, bytes]) -> str:
        data = await asyncio.to_thread(_packed, files)
        sha256 = hashlib.sha256(data).hexdigest()
        if not await self._bundles.has(who, sha256):
            await self._bundles.put(who, sha256, _one_chunk(data))
        return sha256


def job_ref(ref: str) -> str:
    """Return the job in an execution's id; any other reference unchanged."""
    match = _JOB.search(ref)
    return match[0] if match else ref


def execution_id(view: JobView) -> str:
    """Return the id of the job's execution; before there is one, an id that names the job."""
    return view.execution_id or f"{view.backend or DEFAULT_BACKEND}-{view.id}"


def _packed(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    pack((Entry.of_bytes(name, data) for name, data in files.items()), packed)
    return packed.getvalue()


async def _one_chunk(data: bytes) -> AsyncIterator[bytes]:
    yield data


def _record(conn: Connection, job: str, now: float) -> RecordView:
    """Return the job as `POST /api/v1/training` created it, with its progress."""
    row = _SPEC.first(conn, job=job)
    if row is None:
        raise NotFound("There is no such job.", fix="`crucible jobs` lists them.")
    view = queries.read_job(conn, job, now)
    model, config = read_config(JobSpec.model_validate_json(row["spec"]))
    progress = view.progress or ProgressView()
    metrics = queries.latest_metrics(conn, job)
    return RecordView(
        job_id=job,
        user_id=view.user,
        tenant_id=row["project"],
        model_name=model,
        config=_with_checkpoint(config, view),
        status="pending" if view.phase in ("pending", "blocked") else view.status,
        phase=view.phase,
        execution_id=execution_id(view),
        executor_type=view.backend,
        current_epoch=progress.epoch,
        current_metrics={name: value for name, value in metrics.items() if not name.startswith(SYSTEM)},
        total_epochs=progress.total_epochs or _configured_epochs(config),
        progress=view.progress,
        reason=view.reason,
        waiting=view.waiting,
        cost=view.cost,
        created_at=view.created_at,
        started_at=view.started_at,
        ended_at=view.ended_at,
    )


def _with_checkpoint(config: dict[str, object], view: JobView) -> dict[str, object]:
    """Return the config with the checkpoint that the last attempt began from."""
    begun = view.attempts[-1].resume_from if view.attempts else None
    return {**config, "resume_from": begun.id} if begun else config


def _configured_epochs(config: dict[str, object]) -> int | float | None:
    """Return the config's `epochs`, or None: in a job that was not submitted as a training it may be anything."""
    epochs = config.get("epochs")
    return epochs if isinstance(epochs, int | float) and not isinstance(epochs, bool) else None
