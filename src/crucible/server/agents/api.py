"""The API for agents: on a port of its own, with secrets of its own, separate from the public API.

A host authenticates with its machine's secret, a runner with its attempt's. A claim has neither: it sends the nonce of
the machine's bootstrap instead. The agent file, which a machine gets before it can be a host, is for everyone.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Header, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from crucible.control.agents.agents import Agents
from crucible.core.errors import BadInput
from crucible.core.patterns import SHA256_PATTERN, TEXT_PATTERN
from crucible.core.views.agents import AckedView, ClaimedView, DesiredAttemptView, SecretsView
from crucible.core.views.frames import MAX_OFFSET
from crucible.server.context import AgentsControl, Sha256
from crucible.server.http import error_handlers
from crucible.server.http.connections import accept_connection
from crucible.server.http.lingering_close import LingeringClose
from crucible.server.http.middleware import RejectNul, RequestMiddleware
from crucible.server.http.stored_files import send_file
from crucible.server.security.auth import LOOPBACK, ForeignSite, HostMiddleware, bearer
from crucible.server.security.concurrency import ConcurrencyLimit, agent_limits
from crucible.server.security.size_limits import (
    MAX_ARTIFACT,
    MAX_CHECKPOINT,
    MAX_LOG_SEGMENT,
    MAX_TAIL,
    MOST_SEGMENTS,
    BodyLimit,
    Offset,
    Wait,
    limited_stream,
    read_body,
)
from crucible.server.streams.relay import join_session
from crucible.wire.documents.desired import encode_desired
from crucible.wire.documents.messages import MAX_BATCH_BYTES
from crucible.wire.files.paths import safe_name

MAX_DEVICES = 16 * 1024
"""Maximum characters of the X-Crucible-Devices header."""
MAX_SESSIONS = 8 * 1024
"""Maximum characters of the list of sessions that a runner knows."""
STREAMED = re.compile(r"/agent/v1/attempts/[^/]*/[^/]*/(artifacts|checkpoints)/.*")
T = TypeVar("T")

Name = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")]
Rank = Annotated[int, Path(ge=0, le=100_000)]
Hash = Annotated[str, Header(alias="X-Content-SHA256", pattern=SHA256_PATTERN)]


async def _no_browsers(connection: HTTPConnection) -> None:
    """Refuse browsers: agents are programs and send no Origin header."""
    if "origin" in connection.headers:
        raise ForeignSite("Web pages may not call this port.", fix="Open the server's own address instead.")


async def _machine(machine: Name, request: Request, control: AgentsControl) -> None:
    control.check_machine(machine, bearer(request.headers))
    accept_connection(request.scope)


async def _attempt(attempt: Name, connection: HTTPConnection, control: AgentsControl) -> None:
    control.check_attempt(attempt, bearer(connection.headers))
    accept_connection(connection.scope)


async def _attempt_in_query(
    attempt: Annotated[str, Query(min_length=1, max_length=64)], request: Request, control: AgentsControl
) -> None:
    control.check_attempt(attempt, bearer(request.headers))
    accept_connection(request.scope)


def _router(path: str, *checks: Callable[..., Awaitable[None]]) -> APIRouter:
    """Return a router whose routes refuse browsers and run these checks."""
    return APIRouter(prefix=f"/agent/v1{path}", dependencies=[Depends(check) for check in (_no_browsers, *checks)])


claims = _router("")
machines = _router("/machines/{machine}", _machine)
attempts = _router("/attempts/{attempt}/{rank}", _attempt)
code = _router("/bundles", _attempt_in_query)
agent_files = _router("")


def build_agents_api(
    control: Agents, closing: asyncio.Event | None = None, hosts: frozenset[str] = frozenset()
) -> FastAPI:
    """Return the agents' API over `control`. Once `closing` is set, waiting requests return at once.

    `hosts`: host names it answers to besides loopback.
    """
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.control = control
    app.state.closing = closing or asyncio.Event()
    error_handlers.add_error_handlers(app)
    app.add_middleware(BodyLimit, streams=STREAMED, limit=MAX_BATCH_BYTES)
    app.add_middleware(ConcurrencyLimit, limits=agent_limits)
    app.add_middleware(RejectNul)
    app.add_middleware(HostMiddleware, hosts=LOOPBACK | hosts)
    app.add_middleware(LingeringClose)
    app.add_middleware(RequestMiddleware)
    # Not include_router; see build_api.
    app.router.routes.extend(
        route for router in (claims, machines, attempts, code, agent_files) for route in router.routes
    )
    return app


class Claim(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    machine: Annotated[str, Field(min_length=1, max_length=64)]
    nonce: Annotated[str, Field(max_length=256, pattern=r"^[\x21-\x7e]+$")]
    native_id: Annotated[str, Field(min_length=1, max_length=200, pattern=TEXT_PATTERN)]


@claims.post("/claim")
async def claim(body: Claim, control: AgentsControl) -> ClaimedView:
    """Return the machine's secret to the first host with the right nonce."""
    return ClaimedView(secret=await control.claim(body.machine, body.nonce, body.native_id))


@machines.get("/desired")
async def desired(
    machine: Name,
    request: Request,
    control: AgentsControl,
    version: Annotated[int, Query(ge=-1, le=MAX_OFFSET)] = 0,
    wait: Wait = 0.0,
    x_crucible_devices: Annotated[str | None, Header(max_length=MAX_DEVICES)] = None,
) -> Response:
    """Return the desired document as soon as its version differs from `version`; 304 after `wait` seconds."""
    devices = _devices(x_crucible_devices)
    document = await _until_closing(request, control.desired(machine, version, wait, devices))
    if document is None:
        return Response(status_code=304)
    headers = {"ETag": f'"{document.version}"'}
    return Response(encode_desired(document), headers=headers, media_type="application/json")


@attempts.get("/desired", response_model=DesiredAttemptView)
async def attempt_desired(
    attempt: Name,
    rank: Rank,
    request: Request,
    control: AgentsControl,
    stop: bool = False,
    checkpoint: Offset = 0,
    wait: Wait = 0.0,
    sessions: Annotated[str | None, Query(max_length=MAX_SESSIONS, pattern=r"^[a-z0-9,-]*$")] = None,
) -> DesiredAttemptView | Response:
    """Return what a runner should do as soon as it differs from what the runner knows; 304 after `wait` seconds."""
    known = None if sessions is None else frozenset(sessions.split(","))
    view = await _until_closing(request, control.attempt_desired(attempt, rank, stop, checkpoint, wait, known))
    return Response(status_code=304) if view is None else view


@attempts.get("/secrets")
async def secrets(attempt: Name, rank: Rank, control: AgentsControl, response: Response) -> SecretsView:
    """Return the attempt's secret variables, for its runner just before it starts the program."""
    response.headers["Cache-Control"] = "no-store"
    return SecretsView(secrets=await control.secrets(attempt))


@attempts.websocket("/sessions/{session}")
async def meet(socket: WebSocket, attempt: Name, rank: Rank, session: Name, control: AgentsControl) -> None:
    """Connect the agent to a requested session; 404 unless it belongs to this attempt and has no agent yet."""
    await control.require_open(attempt, rank)
    with control.accept_session(attempt, session) as meeting:
        await socket.accept()
        await join_session(meeting, socket)


@attempts.post("/messages")
async def messages(attempt: Name, rank: Rank, request: Request, control: AgentsControl) -> AckedView:
    """Store a signed batch of messages; `acked` is the highest number stored."""
    raw = await read_body(request, MAX_BATCH_BYTES, "The batch")
    return AckedView(acked=await control.ingest(attempt, rank, raw))


@attempts.put("/logs/{n}", status_code=204)
async def put_log(
    attempt: Name,
    rank: Rank,
    n: Annotated[int, Path(ge=0, lt=MOST_SEGMENTS)],
    start: Offset,
    lines: Offset,
    sha256: Hash,
    request: Request,
    control: AgentsControl,
) -> Response:
    """Store segment `n` of the output. Idempotent."""
    data = await read_body(request, MAX_LOG_SEGMENT, "The log segment")
    await control.put_log(attempt, rank, n, start, lines, sha256, data)
    return Response(status_code=204)


@attempts.post("/tail", status_code=204)
async def put_tail(attempt: Name, rank: Rank, start: Offset, request: Request, control: AgentsControl) -> Response:
    """Accept output that is not stored yet, so that followers see it early. It may be lost."""
    await control.put_tail(attempt, rank, start, await read_body(request, MAX_TAIL, "The tail"))
    return Response(status_code=204)


@attempts.put("/artifacts/{path:path}", status_code=204)
async def put_artifact(
    attempt: Name, rank: Rank, path: str, sha256: Hash, request: Request, control: AgentsControl
) -> Response:
    """Store a file that the job wrote, as it arrives. The same again is fine; another is refused once it counts."""
    chunks = limited_stream(request, MAX_ARTIFACT, "The artifact")
    await control.put_artifact(attempt, rank, safe_name(path), sha256, chunks)
    return Response(status_code=204)


@attempts.put("/checkpoints/{sha256}", status_code=204)
async def put_checkpoint(
    attempt: Name, rank: Rank, sha256: Sha256, request: Request, control: AgentsControl
) -> Response:
    """Store a checkpoint, as it arrives; 204 confirms that it is complete. Idempotent."""
    await control.put_checkpoint(attempt, rank, sha256, limited_stream(request, MAX_CHECKPOINT, "The checkpoint"))
    return Response(status_code=204)


@attempts.get("/checkpoints/{sha256}")
async def checkpoint(attempt: Name, rank: Rank, sha256: Sha256, request: Request, control: AgentsControl) -> Response:
    """Return the checkpoint that the attempt starts from, whole or a range of it."""
    return await send_file(request, control.store, await control.open_checkpoint(attempt, rank, sha256), sha256)


@code.get("/{sha256}")
async def bundle(
    sha256: Sha256, attempt: Annotated[str, Query()], request: Request, control: AgentsControl
) -> Response:
    """Return the bundle of the attempt's own job, whole or a range of it."""
    return await send_file(request, control.store, await control.open_bundle(attempt, sha256), f"{sha256}.tar.gz")


@agent_files.get("/agent-{sha256}.pyz")
async def agent_file(sha256: Sha256, request: Request, control: AgentsControl) -> Response:
    """Return the agent file, whole or a range of it. Its connection stays one of the unauthenticated."""
    file, reader = await control.downloads.open(sha256)
    return await send_file(request, reader, file, file.key)


async def _until_closing(request: Request, waiting: Coroutine[Any, Any, T | None]) -> T | None:
    """Return the result of `waiting`, or None as soon as the server closes, so that no request delays the shutdown."""
    closing: asyncio.Event = request.app.state.closing
    task, closed = asyncio.ensure_future(waiting), asyncio.ensure_future(closing.wait())
    try:
        await asyncio.wait({task, closed}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        closed.cancel()
        task.cancel()


def _devices(text: str | None) -> dict[str, object] | None:
    if text is None:
        return None
    try:
        devices = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput("X-Crucible-Devices is not JSON.", why=str(error), fix="Send a JSON object.") from error
    if not isinstance(devices, dict):
        raise BadInput("X-Crucible-Devices is not a JSON object.", fix='Send an object such as {"cpus": 8}.')
    return devices
