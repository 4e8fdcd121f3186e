"""Jobs: submit, list, show, cancel, resume, rerun, health and comparison."""

from __future__ import annotations

from typing import Annotated, Any, Self

from fastapi import APIRouter, Body, Depends, Query
from pydantic import ConfigDict, model_validator
from starlette.responses import Response

from crucible.control.resources.jobs import SubmittedJob
from crucible.core.errors import UnknownName
from crucible.core.job.job_filter import JobFilter
from crucible.core.job.spec import JobSpec
from crucible.core.requests import Resumption
from crucible.core.views.comparisons import ComparisonView
from crucible.core.views.jobs import HealthView, JobPage, JobView
from crucible.server.context import Control, JobRef, Who
from crucible.server.http.problems import ENDED, SAME_KEY, problem_responses
from crucible.server.security.size_limits import Cursor, PageSize, idempotency_key

router = APIRouter(prefix="/api/v1")


def validate_filter(job_filter: JobFilter) -> JobFilter:
    """Return the filter. Raises UnknownName or BadInput for an unknown name or an invalid tag."""
    job_filter.states(), job_filter.kinds(), job_filter.tags
    return job_filter


class JobQuery(JobFilter):
    model_config = ConfigDict(defer_build=False)

    limit: PageSize = 50
    cursor: Cursor = None

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        """Refuse unknown parameters: a mistyped filter must not list every job."""
        for name in parameters:
            if name not in cls.model_fields:
                raise UnknownName("parameter", name, cls.model_fields)
        return parameters

    @model_validator(mode="after")
    def _check_words(self) -> Self:
        validate_filter(self)
        return self


@router.post("/jobs", tags=["jobs"], status_code=201, responses=problem_responses(404, 409, 413, also=SAME_KEY))
async def submit(
    spec: JobSpec,
    control: Control,
    who: Who,
    key: Annotated[str | None, Depends(idempotency_key)],
    response: Response,
) -> JobView:
    """Submit a job. Once this returns, the job is stored and will run."""
    return respond_with_job(await control.jobs.submit(who, spec, key), response)


def respond_with_job(submitted: SubmittedJob, response: Response) -> JobView:
    """Return the job; set the Location header, and status 200 if the job existed before."""
    response.headers["Location"] = f"/api/v1/jobs/{submitted.view.id}"
    if not submitted.created:
        response.status_code = 200
    return submitted.view


@router.get("/jobs", tags=["jobs"])
async def list_jobs(query: Annotated[JobQuery, Query()], control: Control, who: Who) -> JobPage:
    """Return one page of the jobs that match every filter, newest first.

    `next` is the cursor of the next page for the same filters; null on the last page.
    """
    return await control.jobs.list_jobs(who, query, limit=query.limit, cursor=query.cursor)


@router.get("/jobs/{id}", tags=["jobs"], responses=problem_responses(404, 409))
async def show(id: JobRef, control: Control, who: Who) -> JobView:
    """Return one job with its attempts, its last lines of output and the last value of each metric."""
    return await control.jobs.details(who, id)


@router.post("/jobs/{id}/cancel", tags=["jobs"], status_code=202, responses=problem_responses(404, 409, also=ENDED))
async def cancel(id: JobRef, control: Control, who: Who, response: Response) -> JobView:
    """Cancel a job. Its status is `cancelled` once its processes are confirmed to have ended."""
    view, changed = await control.jobs.cancel(who, id)
    if not changed:
        response.status_code = 200
    return view


_NO_CHANGES = Resumption()


@router.post("/jobs/{id}/resume", tags=["jobs"], status_code=202, responses=problem_responses(404, 409))
async def resume(id: JobRef, control: Control, who: Who, body: Annotated[Resumption, Body()] = _NO_CHANGES) -> JobView:
    """Resume a job that has ended: the same job with one more attempt, from a checkpoint if it has one.

    409 while the job has not ended, 404 for a checkpoint that it does not have.
    """
    return await control.jobs.resume(who, id, body)


@router.post("/jobs/{id}/rerun", tags=["jobs"], status_code=201, responses=problem_responses(404, 409, also=SAME_KEY))
async def rerun(
    id: JobRef, control: Control, who: Who, key: Annotated[str | None, Depends(idempotency_key)], response: Response
) -> JobView:
    """Submit a new job with the recorded code, environment, arguments and seed of this one."""
    return respond_with_job(await control.jobs.rerun(who, id, key), response)


@router.get("/jobs/{id}/health", tags=["health"], responses=problem_responses(404, 409))
async def health(id: JobRef, control: Control, who: Who) -> HealthView:
    """Return a job's health: `verdict`, `level` (bad, warning, good), `message` and `advice`.

    `findings` lists all observations, worst first, each with its series, step and numbers.
    """
    return await control.jobs.health(who, id)


@router.get("/compare", tags=["health"], responses=problem_responses(404, 409))
async def compare(
    control: Control,
    who: Who,
    job: Annotated[list[str], Query(min_length=1, max_length=50, description="2 to 20 jobs, each named as in paths")],
) -> ComparisonView:
    """Compare jobs by config, last and best value of each metric, duration and cost; differences are marked."""
    return await control.jobs.compare(who, job)
