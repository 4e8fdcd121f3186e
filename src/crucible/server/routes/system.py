"""The server itself: health, readiness, version, stop, and the schemas of jobs."""

from __future__ import annotations

import os

from fastapi import APIRouter, BackgroundTasks
from starlette.requests import Request
from starlette.responses import Response

from crucible.core.job.job_file import JobFile
from crucible.core.job.spec import JobSpec
from crucible.core.people.identity import Permission
from crucible.core.versions import API
from crucible.core.views.server import AliveView, JsonSchemaView, ReadyView, ServerView, StoppingView
from crucible.server.context import Control, Server, Who
from crucible.server.http.problems import problem_responses
from crucible.server.security.proxies import server_url

router = APIRouter(tags=["server"])


@router.get("/healthz")
async def health(server: Server) -> AliveView:
    """Return 200 while the process lives; `nonce` differs for each run of the server."""
    return AliveView(nonce=server.nonce, version=server.version)


@router.get("/readyz", responses=problem_responses(also={503: "It accepts no jobs yet, or its store cannot be used"}))
async def ready(control: Control, who: Who, server: Server, response: Response) -> ReadyView:
    """Return 200 once the server accepts jobs, 503 before and while its store cannot be used."""
    view = ReadyView(ready=False, nonce=server.nonce, version=server.version)
    if not control.ready():
        return _not_ready(response, view)
    error = await control.store_error()
    if error is not None:  # anyone may ask: where the store is, and what exactly it said, is in the log
        why = f"The store cannot be used ({error.code}); the server's log says more."
        return _not_ready(response, view.model_copy(update={"why": why}))
    deployment = (await control.maintenance.status(who)).deployment
    return ReadyView(nonce=server.nonce, version=server.version, deployment=deployment)


def _not_ready(response: Response, view: ReadyView) -> ReadyView:
    response.status_code = 503
    response.headers["Retry-After"] = "1"
    return view


@router.get("/api/v1/server")
async def about(request: Request, control: Control, server: Server, who: Who) -> ServerView:
    """Return version, addresses, and how much runs, waits and bills; for administrators also the state folder."""
    status = await control.maintenance.status(who)
    view = ServerView(
        version=server.version,
        api=API,
        deployment=status.deployment,
        url=server_url(request, server.public_url),
        agents_url=server.agents_url,
        started_at=server.started_at,
        restored=status.restored,
        running=status.counts.running,
        queued=status.counts.queued,
        billing=status.counts.billing,
    )
    if not who.may(Permission.OPERATE):
        return view
    return view.model_copy(update={"pid": os.getpid(), "home": server.home})


@router.post("/api/v1/server/stop", status_code=202)
async def stop(server: Server, who: Who, background: BackgroundTasks) -> StoppingView:
    """Stop the server. Jobs keep running, and the next server picks them up."""
    who.require(Permission.OPERATE)
    background.add_task(_stop, server)
    return StoppingView()


async def _stop(server: Server) -> None:
    server.on_stop()


@router.get("/api/v1/schema/job")
async def job_schema() -> JsonSchemaView:
    """Return the JSON schema of the body of a submission."""
    return JsonSchemaView.model_validate(JobSpec.model_json_schema())


@router.get("/api/v1/schema/job-file")
async def job_file_schema() -> JsonSchemaView:
    """Return the JSON schema of a job file, as `crucible run job.yaml` reads it."""
    return JsonSchemaView.model_validate(JobFile.model_json_schema())
