"""Bulk routes: submit or cancel many jobs with one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Body
from pydantic import ValidationError
from starlette.requests import Request

from crucible.control.resources.jobs import SubmittedJob
from crucible.core.errors import CrucibleError
from crucible.core.job.spec import JobSpec
from crucible.core.requests import MOST_CANCELLED, BatchItem, CancelRequest, JobBatch
from crucible.core.views.problems import Problem
from crucible.core.views.search import CancelledPage, CancelledView, SubmittedPage, SubmittedView
from crucible.server.context import Control, Who
from crucible.server.http.error_handlers import bad_fields
from crucible.server.http.problems import problem_members, problem_responses, request_id
from crucible.server.routes.jobs import validate_filter
from crucible.server.security.size_limits import validate_key

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"])


@router.post("/bulk", responses=problem_responses(409, 413))
async def submit_many(batch: JobBatch, request: Request, control: Control, who: Who) -> SubmittedPage:
    """Submit up to 500 jobs. `items` has one result per job, in the order of the request.

    `status` is that of a single submission: 201 with the new `job`, 200 with the job that its key created before, or an
    error with its `problem`. Jobs are stored in order, 20 per transaction, and a refused job does not stop the others.
    If the new jobs would be more than a user may have queued, the answer is 409 `queue_full` and none is stored.
    If the request fails halfway, the keys make it safe to send all of it again.
    """
    specs = [_read(item) for item in batch.jobs]
    submitted = iter(
        await control.jobs.submit_many(who, [spec for spec in specs if not isinstance(spec, CrucibleError)])
    )
    results = [spec if isinstance(spec, CrucibleError) else next(submitted) for spec in specs]
    items = tuple(_submitted(n, result, request_id(request)) for n, result in enumerate(results))
    return SubmittedPage(
        items=items,
        created=sum(item.status == 201 for item in items),
        refused=sum(item.problem is not None for item in items),
    )


@router.post("/cancel", responses=problem_responses(413))
async def cancel_many(
    body: Annotated[CancelRequest, Body()], request: Request, control: Control, who: Who
) -> CancelledPage:
    """Cancel many jobs, by id or by filter. A filter selects only jobs that have not ended.

    Cancels at most 1,000 jobs at once, newest first; `more` says whether others match. With `dry_run` nothing is
    cancelled, and the response lists the selected jobs. An id that names no job gets a `problem` and does not stop the
    others.
    """
    if body.filter is not None:
        views, more = await control.jobs.cancel_matching(
            who, validate_filter(body.filter), limit=MOST_CANCELLED, dry_run=body.dry_run
        )
        return _cancelled([CancelledView(job=view) for view in views], more, body)
    results = await control.jobs.cancel_named(who, body.ids or [], dry_run=body.dry_run)
    items = [
        CancelledView(id=ref, problem=_problem(result, request_id(request)))
        if isinstance(result, CrucibleError)
        else CancelledView(job=result)
        for ref, result in zip(body.ids or [], results, strict=True)
    ]
    return _cancelled(items, False, body)


def _cancelled(items: Sequence[CancelledView], more: bool, body: CancelRequest) -> CancelledPage:
    selected = {item.job.id for item in items if item.job is not None}
    return CancelledPage(items=tuple(items), jobs=len(selected), more=more, dry_run=body.dry_run)


def _read(item: BatchItem) -> tuple[JobSpec, str | None] | CrucibleError:
    """Validate one spec by itself: validated as part of the body, an invalid spec would refuse all the others."""
    fields: Any = item.spec
    try:
        return JobSpec.model_validate(fields), validate_key(item.key)
    except ValidationError as error:
        return bad_fields(error.errors(), JobSpec)
    except CrucibleError as error:
        return error


def _submitted(index: int, result: SubmittedJob | CrucibleError, request: str) -> SubmittedView:
    if isinstance(result, CrucibleError):
        return SubmittedView(index=index, status=result.http_status, problem=_problem(result, request))
    return SubmittedView(index=index, status=201 if result.created else 200, job=result.view)


def _problem(error: CrucibleError, request: str) -> Problem:
    return Problem.model_validate(problem_members(error, request))
