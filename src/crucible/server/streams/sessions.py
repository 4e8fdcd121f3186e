"""The socket of sessions: a command in a running job's surroundings, or a connection to a port it listens on.

The frames are those of `crucible.wire.http.sessions`. What is wrong once the socket is open comes as its last frame,
OVER, with the problem in it.
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
from crucible.server.streams.relay import ConnectionLost, SocketConnection, relay_frames
from crucible.server.streams.sockets import ACCESS_ENDED, cancel_all, stream_timing, until_access_ends
from crucible.wire.http import sessions as s

OPEN_SECONDS = 10.0
"""How long after the socket its first frame may come."""

log = structlog.get_logger("crucible.server")

router = APIRouter(prefix="/api/v1")


@router.websocket("/jobs/{id}/session")
async def session(socket: WebSocket, id: JobRef, control: Control, who: Who) -> None:
    """One session at a running job. The first frame, OPEN, says what is wanted; the last, OVER, how it ended."""
    job = await control.sessions.enter(who, id)
    await socket.accept(chosen_protocol(socket.scope))
    line = SocketConnection(socket)
    holding = asyncio.ensure_future(_hold(line, job))
    leaving = asyncio.ensure_future(until_access_ends(socket, stream_timing(socket).recheck))
    try:
        await asyncio.wait({holding, leaving}, return_when=asyncio.FIRST_COMPLETED)
        error = holding.result() if holding.done() else ACCESS_ENDED
    finally:
        await cancel_all(holding, leaving)
    await _close(socket, line, error)


async def _hold(line: SocketConnection, job: RunningJob) -> CrucibleError | None:
    """Hold the session to its end; what was wrong with it."""
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            frame = await line.receive()
        if frame is not None:
            s.frame_kind(frame, frozenset({s.FrameKind.OPEN}))
            await _run(line, job, frame)
    except s.BadFrame as error:
        return BadInput("A frame of the session is invalid.", why=f"{error}.", fix="See docs/attach.md, Frames.")
    except TimeoutError:
        return TimedOut("The session was not opened.", fix="Send the OPEN frame at once.")
    except CrucibleError as error:
        return error
    except ConnectionLost:
        return None
    except Exception as error:
        log.error("unexpected error", exc_info=error)
        return Internal("Something unexpected happened.", fix="The details are in server.log.")
    return None


async def _run(line: SocketConnection, job: RunningJob, frame: bytes) -> None:
    """Run the session from its opening to its end. A client that leaves before it begins cancels it."""
    async with contextlib.AsyncExitStack() as held:
        coming = asyncio.ensure_future(held.enter_async_context(job.session(s.read_opening(frame))))
        leaving = asyncio.ensure_future(line.wait_closed())
        try:
            await asyncio.wait({coming, leaving}, return_when=asyncio.FIRST_COMPLETED)
            agent = coming.result() if coming.done() else leaving.result()
        finally:
            await cancel_all(coming, leaving)
        if agent is not None:
            await agent.send(frame)
            await relay_frames(line, agent)


async def _close(socket: WebSocket, line: SocketConnection, error: CrucibleError | None) -> None:
    if error is not None:
        problem = s.Problem(error.code, error.http_status, error.what, error.why, error.fix)
        with contextlib.suppress(ConnectionLost):
            await line.send(s.over_frame(s.Over(problem=problem)))
    await line.close(stream_timing(socket).close)
