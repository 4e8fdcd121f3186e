"""`/orchestrate` and `/status`: training jobs as tasks of tenants."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from crucible.core.job.training import Orchestration
from crucible.core.views.training import RecordView, TaskProgress, TaskView
from crucible.server.context import Control, Who
from crucible.server.http.problems import SAME_KEY, problem_responses
from crucible.server.routes.training import Key

router = APIRouter(tags=["training"])


@router.post("/orchestrate", status_code=201, responses=problem_responses(404, 409, 413, also=SAME_KEY))
async def orchestrate(body: Orchestration, control: Control, who: Who, key: Key, response: Response) -> TaskView:
    """Submit a training task for a tenant, which is a project here. Returns the same as `/status`."""
    submitted = await control.trainings.submit(who, body.request(), key)
    job = submitted.view.id
    response.headers["Location"] = f"/status?task_id={job}"
    if not submitted.created:
        response.status_code = 200
    return task_view(await control.trainings.record(who, job))


@router.get("/status", responses=problem_responses(404, 409))
async def status(
    task_id: Annotated[
        str, Query(min_length=1, max_length=200, description="`task_id` of the response of /orchestrate")
    ],
    control: Control,
    who: Who,
) -> TaskView:
    """Return a task: its status, creation time and progress."""
    return task_view(await control.trainings.record(who, task_id))


def task_view(record: RecordView) -> TaskView:
    percent = record.progress.percent if record.progress else None
    return TaskView(
        task_id=record.job_id,
        status="queued" if record.status == "pending" else record.status,
        created_at=record.created_at,
        progress=TaskProgress(
            epoch=record.current_epoch or 0,
            total_epochs=record.total_epochs,
            progress_percent=100 if record.status == "completed" else percent or 0,
            message=_message(record),
        ),
    )


def _message(record: RecordView) -> str:
    """Return why the job ended, what it waits for, or its progress."""
    if record.reason:
        return record.reason.message
    if record.waiting:
        return f"Waiting: {record.waiting}"
    return (record.progress.message if record.progress else None) or record.phase.capitalize()
