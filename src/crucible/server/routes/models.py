"""Model plugins installed in the server's Python for models, and jobs that run them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path
from starlette.responses import Response

from crucible.core.job.models import ModelOrder
from crucible.core.requests import ModelJob
from crucible.core.views.jobs import JobView
from crucible.core.views.server import ModelPage, ModelView
from crucible.server.context import Control, Who
from crucible.server.http.problems import SAME_KEY, problem_responses
from crucible.server.routes.jobs import respond_with_job
from crucible.server.security.size_limits import idempotency_key

router = APIRouter(prefix="/api/v1/models", tags=["models"])

ModelName = Annotated[str, Path(min_length=1, max_length=200, description="the name of a model")]


@router.get("")
async def list_models(control: Control, who: Who) -> ModelPage:
    """List all models; broken ones have `error`. The list is empty if the setting `models_python` is not set."""
    return await control.models.list_models(who)


@router.get("/{name}", responses=problem_responses(404))
async def show(name: ModelName, control: Control, who: Who) -> ModelView:
    """Return one model: what it can do, and the schema of its config."""
    return await control.models.get(who, name)


@router.post("/{name}/jobs", status_code=201, responses=problem_responses(404, 409, also=SAME_KEY))
async def submit(
    name: ModelName,
    body: ModelJob,
    control: Control,
    who: Who,
    key: Annotated[str | None, Depends(idempotency_key)],
    response: Response,
) -> JobView:
    """Submit a job that trains, runs or evaluates a model. Once this returns, the job is stored and will run."""
    order = ModelOrder(name, body.method, body.config, body.inputs, body.callbacks)
    spec = await control.models.job_spec(who, order, body.job)
    return respond_with_job(await control.jobs.submit(who, spec, key), response)
