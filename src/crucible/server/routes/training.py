"""The training routes: the same jobs, in the words of training platforms."""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import io
import re
from collections.abc import AsyncIterator, Mapping
from typing import Annotated

from fastapi import APIRouter, Body, Depends, Path, Query, WebSocket
from starlette.responses import Response

from crucible.control.control_plane import ControlPlane
from crucible.control.jobs.training import execution_id
from crucible.control.resources.jobs import SubmittedJob
from crucible.core.errors import NotFound
from crucible.core.ids import ALPHABET
from crucible.core.job.training import (
    PreparedJob,
    TrainingRequest,
    job_fields,
    model_order,
    no_model_plugin,
    prepare_job,
)
from crucible.core.people.identity import Identity
from crucible.core.requests import TrainingResumption
from crucible.core.views.frames import Cursors
from crucible.core.views.training import EndingView, ExecutionView, NewestView, OutputView, RecordView
from crucible.server.context import Control, Who
from crucible.server.http.problems import ENDED, SAME_KEY, problem_responses
from crucible.server.security.size_limits import AttemptNumber, LogBytes, MiB, Offset, idempotency_key
from crucible.server.streams.sockets import stream_job
from crucible.wire.files.archive import Entry, pack

_JOB = re.compile(rf"job-[{ALPHABET}]{{26}}")

router = APIRouter(prefix="/api/v1/training", tags=["training"])

TrainingRef = Annotated[
    str, Path(min_length=1, max_length=200, description="a job's id, short id or ending, `last`, or an execution's id")
]
Key = Annotated[str | None, Depends(idempotency_key)]


def find_job_id(ref: str) -> str:
    """The job in an execution's id (`local-job-…-4711`); anything else names a job as everywhere."""
    found = _JOB.search(ref)
    return found[0] if found else ref


async def submit(control: ControlPlane, who: Identity, request: TrainingRequest, key: str | None) -> SubmittedJob:
    """Stores the program, then the job."""
    prepared = await _prepared(control, who, request)
    spec = prepared.spec
    if prepared.files:
        data = await asyncio.to_thread(_packed, prepared.files)
        sha = hashlib.sha256(data).hexdigest()
        if not await control.bundles.has(who, sha):
            await control.bundles.put(who, sha, _once(data))
        spec = spec.model_copy(update={"bundle": sha})
    if prepared.project is not None:
        await control.people.ensure_project(who, prepared.project)
        spec = spec.model_copy(update={"project": prepared.project})
    return await control.jobs.submit(who, spec, key)


async def _prepared(control: ControlPlane, who: Identity, request: TrainingRequest) -> PreparedJob:
    """The program that the request brings, or else the model plugin that it names."""
    order = model_order(request)
    if order is None:
        return prepare_job(request)
    wishes = {name: value for name, value in job_fields(request).items() if name != "environment"}
    try:
        return PreparedJob(await control.models.job_spec(who, order, wishes), project=request.tenant_id)
    except NotFound as error:
        raise no_model_plugin(request, error.fix) from error


def _packed(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    pack((Entry.of_bytes(name, data) for name, data in files.items()), packed)
    return packed.getvalue()


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


@router.post(
    "/create", status_code=201, responses=problem_responses(404, 409, 413, also=SAME_KEY), operation_id="create_job"
)
@router.post("", status_code=201, responses=problem_responses(404, 409, 413, also=SAME_KEY))
async def create(request: TrainingRequest, control: Control, who: Who, key: Key, response: Response) -> ExecutionView:
    """Submit a training job: `{"job_id", "execution_id"}` once it is stored.

    422 for a model that is no plugin here when the config brings no program, and for an unknown executor or tier.
    """
    submitted = await submit(control, who, request, key)
    job = submitted.view.id
    response.headers["Location"] = f"/api/v1/training/{job}"
    if not submitted.created:
        response.status_code = 200
    return ExecutionView(job_id=job, execution_id=execution_id(submitted.view))


@router.get("/{job_id}", responses=problem_responses(404, 409))
async def show(job_id: TrainingRef, control: Control, who: Who) -> RecordView:
    """The record: user, model, config, status, executor, current epoch and metrics."""
    return await control.jobs.training_record(who, find_job_id(job_id))


_AS_IT_WAS = TrainingResumption()


@router.post("/{job_id}/resume", status_code=202, responses=problem_responses(404, 409))
async def resume(
    job_id: TrainingRef, control: Control, who: Who, wish: Annotated[TrainingResumption, Body()] = _AS_IT_WAS
) -> ExecutionView:
    """Go on with a job that has ended, from its newest checkpoint: `{"job_id", "execution_id", "resume_from"}`.

    409 while it has not ended, or if it completed and has no checkpoint; 404 for a checkpoint it does not have.
    """
    job = await control.jobs.find(who, find_job_id(job_id))
    kept = [item for item in (await control.checkpoints.list_checkpoints(who, job)).items if item.kept]
    begun = wish.checkpoint or (kept[0].id if kept else None)
    view = await control.jobs.resume(who, job, wish.model_copy(update={"checkpoint": begun}))
    return ExecutionView(job_id=job, execution_id=execution_id(view), resume_from=begun)


@router.post("/{job_id}/cancel", status_code=202, responses=problem_responses(404, 409, also=ENDED))
async def cancel(job_id: TrainingRef, control: Control, who: Who, response: Response) -> EndingView:
    """Ask for the end of a job: `{"job_id", "status"}`."""
    view, changed = await control.jobs.cancel(who, find_job_id(job_id))
    if not changed:
        response.status_code = 200
    return EndingView(job_id=view.id, status=view.status)


@router.get("/{job_id}/logs", responses=problem_responses(404, 409))
async def logs(
    job_id: TrainingRef,
    control: Control,
    who: Who,
    offset: Offset = 0,
    limit: LogBytes = MiB,
    attempt: AttemptNumber = None,
) -> OutputView:
    """Output from byte `offset` on as text; go on with `next_offset` until `complete`."""
    page = await control.outputs.logs(who, find_job_id(job_id), attempt=attempt, offset=offset, limit=limit, since=None)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(page.data, final=page.complete)
    held = len(decoder.getstate()[0])  # the beginning of a character waits for its rest
    return OutputView(
        job_id=await control.jobs.find(who, find_job_id(job_id)),
        logs=text,
        attempt=page.attempt,
        offset=page.start,
        next_offset=page.next - held,
        complete=page.complete,
    )


@router.get("/{job_id}/metrics", responses=problem_responses(404, 409))
async def metrics(job_id: TrainingRef, control: Control, who: Who) -> NewestView:
    """The newest values: `{"job_id", "epoch", "timestamp", "metrics"}`."""
    record = await control.jobs.training_record(who, find_job_id(job_id))
    found = await control.outputs.metrics(who, record.job_id, series=[], points=-1)
    times = [at for series in found.series.values() for _step, _value, at in series.points if at is not None]
    return NewestView(
        job_id=record.job_id,
        epoch=record.current_epoch,
        timestamp=max(times, default=None),
        metrics=record.current_metrics,
    )


@router.websocket("/{job_id}/stream")
async def stream(
    socket: WebSocket,
    job_id: TrainingRef,
    control: Control,
    who: Who,
    cursors: Annotated[Cursors, Query()],
) -> None:
    """The same frames as `/api/v1/jobs/{id}/stream`, wherever the job runs."""
    await stream_job(socket, find_job_id(job_id), control, who, cursors)
