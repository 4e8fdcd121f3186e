"""`/orchestrate` and `/status`: jobs as tasks of tenants."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from crucible.control.views import View
from crucible.core.training import Orchestration
from crucible.server.answers import answer
from crucible.server.context import Control, Who
from crucible.server.problems import documented
from crucible.server.training import Key, job_of, submit

router = APIRouter(tags=["training"])

_AGAIN: dict[int | str, dict[str, Any]] = {200: {"description": "the same key again"}}


@router.post("/orchestrate", status_code=201, responses={**_AGAIN, **documented(404, 409, 413)})
async def orchestrate(wish: Orchestration, control: Control, who: Who, key: Key) -> Response:
    """Submit a training task for a tenant, which is a project here; answers as `/status` does."""
    submitted = await submit(control, who, wish.request(), key)
    job = str(submitted.view["id"])
    where = {"Location": f"/status?task_id={job}"}
    return answer(task_view(await control.jobs.training_record(who, job)), 201 if submitted.created else 200, where)


@router.get("/status", responses=documented(404, 409))
async def status(
    task_id: Annotated[str, Query(min_length=1, max_length=200, description="what /orchestrate answered")],
    control: Control,
    who: Who,
) -> Response:
    """A task: status, when it was made, and its progress."""
    return answer(task_view(await control.jobs.training_record(who, job_of(task_id))))


def task_view(record: View) -> View:
    progress = record["progress"] or {}
    percent = progress.get("percent")
    return {
        "task_id": record["job_id"],
        "status": "queued" if record["status"] == "pending" else record["status"],
        "created_at": record["created_at"],
        "progress": {
            "epoch": record["current_epoch"] or 0,
            "total_epochs": record["total_epochs"],
            "progress_percent": 100 if record["status"] == "completed" else percent or 0,
            "message": _message(record),
        },
    }


def _message(record: View) -> str:
    """What it does now: how far it is, what it waits for, or why it ended so."""
    if record["reason"]:
        return str(record["reason"]["message"])
    if record["waiting"]:
        return f"Waiting: {record['waiting']}"
    return str((record["progress"] or {}).get("message") or record["phase"].capitalize())
