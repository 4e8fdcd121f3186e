"""The server itself: health, what it is, how to end it."""

from __future__ import annotations

import os

from fastapi import APIRouter
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from crucible.core.jobfile import JobFile
from crucible.core.people import Permission
from crucible.core.spec import JobSpec
from crucible.core.versions import API
from crucible.server.answers import answer
from crucible.server.context import Control, Server, Who
from crucible.server.proxies import own_address

router = APIRouter(tags=["server"])


@router.get("/healthz")
async def health(server: Server) -> Response:
    """Answers while the process lives; `nonce` tells this run from others."""
    return answer({"ok": True, "nonce": server.nonce, "version": server.version})


@router.get("/readyz", responses={503: {"description": "not ready yet"}})
async def ready(control: Control, who: Who, server: Server) -> Response:
    """200 once jobs are taken, 503 before."""
    known = {"nonce": server.nonce, "version": server.version}
    if not control.ready():
        return answer({"ready": False, **known}, 503, {"Retry-After": "1"})
    deployment = (await control.maintenance.status(who)).get("deployment")
    return answer({"ready": True, **known, "deployment": deployment})


@router.get("/api/v1/server")
async def about(request: Request, control: Control, server: Server, who: Who) -> Response:
    """Version, addresses, and how much runs, waits and bills; for administrators also the state folder."""
    own: dict[str, object] = {
        "version": server.version,
        "api": API,
        "url": own_address(request, server.public_url),
        "agents_url": server.agents_url,
        "started_at": server.started_at,
    }
    if who.may(Permission.OPERATE):
        own |= {"pid": os.getpid(), "home": server.home}
    return answer({**await control.maintenance.status(who), **own})


@router.post("/api/v1/server/stop", status_code=202)
async def stop(server: Server, who: Who) -> Response:
    """End the server. Jobs go on without it and are found again by the next one."""
    who.need(Permission.OPERATE)
    ended = answer({"stopping": True}, 202)
    ended.background = BackgroundTask(_stop, server)
    return ended


async def _stop(server: Server) -> None:
    server.on_stop()


@router.get("/api/v1/schema/job")
async def job_schema() -> Response:
    """The JSON schema of a submission's body."""
    return answer(JobSpec.model_json_schema())


@router.get("/api/v1/schema/job-file")
async def job_file_schema() -> Response:
    """The JSON schema of a job file, as `crucible run job.yaml` reads it."""
    return answer(JobFile.model_json_schema())
