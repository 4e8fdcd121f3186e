"""The training routes: the same jobs, in the terms of training platforms."""

from __future__ import annotations

import codecs
from typing import Annotated

from fastapi import APIRouter, Body, Depends, Path, Query, WebSocket
from starlette.responses import Response

from crucible.control.resources.trainings import execution_id, job_ref
from crucible.core.job.training import TrainingRequest
from crucible.core.requests import TrainingResumption
from crucible.core.views.frames import Cursors
from crucible.core.views.training import EndingView, ExecutionView, NewestView, OutputView, RecordView
from crucible.server.context import Control, Who
from crucible.server.http.problems import ENDED, SAME_KEY, problem_responses
from crucible.server.security.size_limits import AttemptNumber, LogBytes, MiB, Offset, idempotency_key
from crucible.server.streams.sockets import stream_job

router = APIRouter(prefix="/api/v1/training", tags=["training"])

TrainingRef = Annotated[
    str, Path(min_length=1, max_length=200, description="a job's id, short id or ending, `last`, or an execution's id")
]
Key = Annotated[str | None, Depends(idempotency_key)]


@router.post(
    "/create", status_code=201, responses=problem_responses(404, 409, 413, also=SAME_KEY), operation_id="create_job"
)
@router.post("", status_code=201, responses=problem_responses(404, 409, 413, also=SAME_KEY))
async def create(request: TrainingRequest, control: Control, who: Who, key: Key, response: Response) -> ExecutionView:
    """Submit a training job. Returns `{"job_id", "execution_id"}` once the job is stored.

    422 for an unknown executor or tier, and for a model without a plugin here if the config has no program.
    """
    submitted = await control.trainings.submit(who, request, key)
    job = submitted.view.id
    response.headers["Location"] = f"/api/v1/training/{job}"
    if not submitted.created:
        response.status_code = 200
    return ExecutionView(job_id=job, execution_id=execution_id(submitted.view))


@router.get("/{job_id}", responses=problem_responses(404, 409))
async def show(job_id: TrainingRef, control: Control, who: Who) -> RecordView:
    """Return a job's record: user, model, config, status, executor, current epoch and metrics."""
    return await control.trainings.record(who, job_id)


_NO_CHANGES = TrainingResumption()


@router.post("/{job_id}/resume", status_code=202, responses=problem_responses(404, 409))
async def resume(
    job_id: TrainingRef, control: Control, who: Who, body: Annotated[TrainingResumption, Body()] = _NO_CHANGES
) -> ExecutionView:
    """Resume a job that has ended from its newest checkpoint. Returns `{"job_id", "execution_id", "resume_from"}`.

    409 while it has not ended, or if it completed and has no checkpoint; 404 for a checkpoint that it does not have.
    """
    return await control.trainings.resume(who, job_id, body)


@router.post("/{job_id}/cancel", status_code=202, responses=problem_responses(404, 409, also=ENDED))
async def cancel(job_id: TrainingRef, control: Control, who: Who, response: Response) -> EndingView:
    """Cancel a job. Returns `{"job_id", "status"}`."""
    view, changed = await control.jobs.cancel(who, job_ref(job_id))
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
    """Return output from byte `offset` on as text. Continue from `next_offset` until `complete`."""
    page = await control.outputs.logs(who, job_ref(job_id), attempt=attempt, offset=offset, limit=limit, since=None)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(page.data, final=page.complete)
    held = len(decoder.getstate()[0])  # bytes of a character that is still incomplete
    return OutputView(
        job_id=await control.jobs.find(who, job_ref(job_id)),
        logs=text,
        attempt=page.attempt,
        offset=page.start,
        next_offset=page.next - held,
        complete=page.complete,
    )


@router.get("/{job_id}/metrics", responses=problem_responses(404, 409))
async def metrics(job_id: TrainingRef, control: Control, who: Who) -> NewestView:
    """Return the newest values: `{"job_id", "epoch", "timestamp", "metrics"}`."""
    record = await control.trainings.record(who, job_id)
    view = await control.outputs.metrics(who, record.job_id, series=[], points=-1)
    times = [at for series in view.series.values() for _step, _value, at in series.points if at is not None]
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
    """Send the same frames as `/api/v1/jobs/{id}/stream`, wherever the job runs."""
    await stream_job(socket, job_ref(job_id), control, who, cursors)
