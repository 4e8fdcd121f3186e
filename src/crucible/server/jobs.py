"""Jobs: submit, list, look at, cancel, resume, run again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Depends
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from crucible.core.spec import JobSpec
from crucible.server.answers import answer
from crucible.server.context import Control, JobRef, Who
from crucible.server.filters import Wanted
from crucible.server.limits import Cursor, PageSize, idempotency_key
from crucible.server.problems import documented

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"])


@router.post("", status_code=201, responses={200: {"description": "the same key again"}, **documented(404, 409, 413)})
async def submit(
    spec: JobSpec, control: Control, who: Who, key: Annotated[str | None, Depends(idempotency_key)]
) -> Response:
    """Submit a job. Once this answers, the job is stored and will run."""
    submitted = await control.jobs.submit(who, spec, key)
    where = {"Location": f"/api/v1/jobs/{submitted.view['id']}"}
    return answer(submitted.view, 201 if submitted.created else 200, where)


@router.get("")
async def list_jobs(
    wanted: Wanted, control: Control, who: Who, limit: PageSize = 50, cursor: Cursor = None
) -> Response:
    """Jobs that fit every filter, newest first.

    `next` of the answer is the cursor of the next page, for the same filters; null on the last.
    """
    return answer(await control.jobs.list_jobs(who, wanted, limit=limit, cursor=cursor))


@router.get("/{id}", responses=documented(404, 409))
async def show(id: JobRef, control: Control, who: Who) -> Response:
    """One job with its attempts, its last lines of output and the last value of each metric."""
    return answer(await control.jobs.details(who, id))


@router.post(
    "/{id}/cancel",
    status_code=202,
    responses={200: {"description": "it has ended before"}, **documented(404, 409)},
)
async def cancel(id: JobRef, control: Control, who: Who) -> Response:
    """Ask for the end of a job. It is `cancelled` once its processes are confirmed to be gone."""
    view, changed = await control.jobs.cancel(who, id)
    return answer(view, 202 if changed else 200)


class Resumption(BaseModel):
    """From where and at which place a job goes on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    checkpoint: Annotated[
        str | None,
        Field(min_length=1, max_length=1024, description="id, short id, name, `latest` or `best`; latest unless given"),
    ] = None
    backend: Annotated[str | None, Field(min_length=1, max_length=200, description="the job's own unless given")] = None


_AS_IT_WAS = Resumption()


@router.post("/{id}/resume", status_code=202, responses=documented(404, 409))
async def resume(id: JobRef, control: Control, who: Who, wish: Annotated[Resumption, Body()] = _AS_IT_WAS) -> Response:
    """Reopen a job that has ended: the same job with one more attempt, from a checkpoint if it has any.

    409 while it has not ended, 404 for a checkpoint that it does not have.
    """
    return answer(await control.jobs.resume(who, id, checkpoint=wish.checkpoint, backend=wish.backend), 202)


@router.post(
    "/{id}/rerun",
    status_code=201,
    responses={200: {"description": "the same key again"}, **documented(404, 409)},
)
async def rerun(
    id: JobRef, control: Control, who: Who, key: Annotated[str | None, Depends(idempotency_key)]
) -> Response:
    """A new job from what was recorded of this one: code, environment, arguments, seed."""
    submitted = await control.jobs.rerun(who, id, key)
    where = {"Location": f"/api/v1/jobs/{submitted.view['id']}"}
    return answer(submitted.view, 201 if submitted.created else 200, where)
