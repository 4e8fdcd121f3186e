"""Many jobs with one request: submitted, or cancelled."""

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


@router.post("/bulk", responses=problem_responses(413))
async def submit_many(batch: JobBatch, request: Request, control: Control, who: Who) -> SubmittedPage:
    """Submit up to 500 jobs. `items` says of each, in their order, what became of it.

    `status` is what a single submission would have answered: 201 with the new `job`, 200 with the one that its
    key made before, or an error with its `problem`. Jobs are stored in order, 20 of them in one transaction; one
    that is refused stops none of the others, and after a failure in between the keys make it safe to send all again.
    """
    read = [_read(item) for item in batch.jobs]
    done = iter(await control.jobs.submit_many(who, [one for one in read if not isinstance(one, CrucibleError)]))
    results = [one if isinstance(one, CrucibleError) else next(done) for one in read]
    items = tuple(_submitted(n, result, request_id(request)) for n, result in enumerate(results))
    return SubmittedPage(
        items=items,
        created=sum(item.status == 201 for item in items),
        refused=sum(item.problem is not None for item in items),
    )


@router.post("/cancel", responses=problem_responses(413))
async def cancel_many(
    wish: Annotated[CancelRequest, Body()], request: Request, control: Control, who: Who
) -> CancelledPage:
    """Ask for the end of many jobs; of those a filter fits only the ones that have not ended are meant.

    At most 1,000 at once, newest first; `more` says that there are others. With `dry_run` nothing is asked, and the
    answer says which jobs are meant. Ids that name no job have a `problem`, and stop none of the others.
    """
    if wish.filter is not None:
        views, more = await control.jobs.cancel_matching(
            who, validate_filter(wish.filter), limit=MOST_CANCELLED, dry_run=wish.dry_run
        )
        return _cancelled([CancelledView(job=view) for view in views], more, wish)
    found = await control.jobs.cancel_named(who, wish.ids or [], dry_run=wish.dry_run)
    items = [
        CancelledView(id=ref, problem=_problem(one, request_id(request)))
        if isinstance(one, CrucibleError)
        else CancelledView(job=one)
        for ref, one in zip(wish.ids or [], found, strict=True)
    ]
    return _cancelled(items, False, wish)


def _cancelled(items: Sequence[CancelledView], more: bool, wish: CancelRequest) -> CancelledPage:
    meant = {item.job.id for item in items if item.job is not None}
    return CancelledPage(items=tuple(items), jobs=len(meant), more=more, dry_run=wish.dry_run)


def _read(item: BatchItem) -> tuple[JobSpec, str | None] | CrucibleError:
    """Validate one spec by itself: as part of the body, an invalid one would refuse all the others."""
    given: Any = item.spec
    try:
        return JobSpec.model_validate(given), validate_key(item.key)
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
