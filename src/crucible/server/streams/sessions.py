"""The socket of sessions: run a command beside a running job, or connect to a port that the job listens on.

The frames are those of `crucible.wire.http.sessions`. An error on the open socket comes as the problem in its last
frame, OVER.
"""

from __future__ import annotations

import asyncio
import contextlib

import structlog
from fastapi import APIRouter, WebSocket

from crucible.control.resources.exec_access import RunningJob
from crucible.core.errors import BadInput, CrucibleError, TimedOut
from crucible.server.context import Control, JobRef, Who
from crucible.server.http.error_handlers import Internal
from crucible.server.security.auth import chosen_protocol
from crucible.server.streams.relay import ConnectionLost, SocketConnection, agent_lost, relay_frames
from crucible.server.streams.sockets import ACCESS_ENDED, cancel_all, stream_timing, until_access_ends
from crucible.wire.http import sessions as s

OPEN_SECONDS = 10.0
"""Time limit for the first frame of an open socket."""

log = structlog.get_logger("crucible.server")

router = APIRouter(prefix="/api/v1")


@router.websocket("/jobs/{id}/session")
async def session(socket: WebSocket, id: JobRef, control: Control, who: Who) -> None:
    """Open one session of a running job. The first frame, OPEN, says what to start; the last, OVER, how it ended."""
    job = await control.sessions.enter(who, id)
    await socket.accept(chosen_protocol(socket.scope))
    client = SocketConnection(socket)
    running = asyncio.ensure_future(_run_session(client, job))
    leaving = asyncio.ensure_future(until_access_ends(socket))
    try:
        await asyncio.wait({running, leaving}, return_when=asyncio.FIRST_COMPLETED)
        error = running.result() if running.done() else ACCESS_ENDED
    finally:
        await cancel_all(running, leaving)
    await _close(socket, client, error)


async def _run_session(client: SocketConnection, job: RunningJob) -> CrucibleError | None:
    """Run the session to its end; return its error or None."""
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            frame = await client.receive()
        if frame is not None:
            s.frame_kind(frame, frozenset({s.FrameKind.OPEN}))
            await _relay(client, job, frame)
    except s.BadFrame as error:
        return BadInput("A frame of the session is invalid.", why=f"{error}.", fix="See docs/attach.md, Frames.")
    except TimeoutError:
        return TimedOut("The session was not opened.", fix="Send the OPEN frame as soon as the socket is open.")
    except CrucibleError as error:
        return error
    except Exception as error:
        log.error("unexpected error", exc_info=error)
        return Internal("Something unexpected happened.", fix="The details are in server.log.")
    return None


async def _relay(client: SocketConnection, job: RunningJob, frame: bytes) -> None:
    """Open the session and relay its frames. A client that leaves before it begins cancels it."""
    async with contextlib.AsyncExitStack() as stack:
        opening = asyncio.ensure_future(stack.enter_async_context(job.session(s.read_opening(frame))))
        leaving = asyncio.ensure_future(client.wait_closed())
        try:
            await asyncio.wait({opening, leaving}, return_when=asyncio.FIRST_COMPLETED)
            agent = opening.result() if opening.done() else leaving.result()
        finally:
            await cancel_all(opening, leaving)
        if agent is not None:
            try:
                await agent.send(frame)
            except ConnectionLost:
                raise agent_lost() from None
            await relay_frames(client, agent)


async def _close(socket: WebSocket, client: SocketConnection, error: CrucibleError | None) -> None:
    if error is not None:
        problem = s.Problem(error.code, error.http_status, error.what, error.why, error.fix)
        with contextlib.suppress(ConnectionLost):
            await client.send(s.over_frame(s.Over(problem=problem)))
    await client.close(stream_timing(socket).close)
