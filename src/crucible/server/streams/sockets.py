"""Sockets that follow one job or all jobs, with replay from a cursor."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Query, WebSocket
from starlette.websockets import WebSocketDisconnect

from crucible.control.control_plane import ControlPlane as ControlPlane
from crucible.core.errors import CrucibleError, NotAllowed
from crucible.core.people.identity import Identity
from crucible.core.views.frames import Cursors, FeedCursor
from crucible.server.context import Control, JobRef, Who
from crucible.server.http.problems import TROUBLE_CLOSE, close_code, close_reason
from crucible.server.security.auth import IDENTITY, STILL_ALLOWED, chosen_protocol
from crucible.server.streams.follow import AllJobsFollower, FrameSender, JobFollower, ReaderTooSlow, StreamTiming
from crucible.server.streams.shared_reads import SharedReads

NORMAL, TRY_AGAIN = 1000, 1013
ACCESS_ENDED = NotAllowed(
    "The token was revoked or has expired, or its permissions have changed; connect again.",
    fix="Log in again with `crucible login URL`, or use another token.",
)

log = structlog.get_logger("crucible.server")

router = APIRouter(prefix="/api/v1")


@router.websocket("/jobs/{id}/stream")
async def stream_job(
    socket: WebSocket,
    id: JobRef,
    control: Control,
    who: Who,
    cursors: Annotated[Cursors, Query()],
) -> None:
    """Send events above `after`, output from `offset` of `attempt` (default: the newest), then what follows.

    Closes with 1000 once the job has ended and everything was sent; the last frame is the job itself.
    """
    job = await control.jobs.find(who, id)
    timing = stream_timing(socket)
    follower = JobFollower(_shared_reads(socket, control, who), FrameSender(socket, timing.send), job, cursors, timing)
    await _serve(socket, follower, timing)


@router.websocket("/stream")
async def stream_all(socket: WebSocket, control: Control, who: Who, cursor: Annotated[FeedCursor, Query()]) -> None:
    """Send the events of all jobs with a cursor above `after`, then new ones as they come."""
    timing = stream_timing(socket)
    follower = AllJobsFollower(
        _shared_reads(socket, control, who), FrameSender(socket, timing.send), cursor.after, timing
    )
    await _serve(socket, follower, timing)


def _shared_reads(socket: WebSocket, control: ControlPlane, who: Identity) -> SharedReads:
    return SharedReads(control, socket.app.state.coalescer, who)


def stream_timing(socket: WebSocket) -> StreamTiming:
    timing: StreamTiming = socket.app.state.timing
    return timing


async def _serve(socket: WebSocket, follower: JobFollower | AllJobsFollower, timing: StreamTiming) -> None:
    """Run the follower until it is done, the client leaves or loses access, then close the socket."""
    await socket.accept(chosen_protocol(socket.scope))
    following = asyncio.ensure_future(follower.run())
    leaving = asyncio.ensure_future(_until_closed(socket))
    access_ended = asyncio.ensure_future(until_access_ends(socket))
    try:
        await asyncio.wait({following, leaving, access_ended}, return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            await _close(socket, following.exception(), timing)
        elif access_ended.done():
            await _close(socket, access_ended.exception() or ACCESS_ENDED, timing)
    finally:
        await cancel_all(following, leaving, access_ended)


async def _until_closed(socket: WebSocket) -> None:
    """Return when the client leaves. Anything it sends is dropped: these sockets take no requests."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


async def until_access_ends(socket: WebSocket) -> None:
    """Return when the caller's token is no longer valid or its permissions have changed.

    A change wakes it at once. A wake-up may be lost: it checks now and then in any case.
    """
    control: ControlPlane = socket.app.state.control
    who: Identity = socket.scope[IDENTITY]
    still_allowed = socket.scope.get(STILL_ALLOWED, _always)  # not set for the owner, whose token cannot be revoked
    with control.tokens.watch_access(who) as changes:
        while await still_allowed():
            await changes.wait(min(stream_timing(socket).recheck, control.tokens.seconds_left(who)))


async def _always() -> bool:
    return True


async def _close(socket: WebSocket, error: BaseException | None, timing: StreamTiming) -> None:
    if isinstance(error, WebSocketDisconnect):
        return
    code, reason = _verdict(error)
    # A stuck client answers the close late or never, and one that left cannot answer it.
    with contextlib.suppress(TimeoutError, WebSocketDisconnect):
        await asyncio.wait_for(socket.close(code, reason), timing.close)


def _verdict(error: BaseException | None) -> tuple[int, str]:
    """Return the close code and reason for a follower that ended with this error."""
    if error is None:
        return NORMAL, "the job has ended"
    if isinstance(error, ReaderTooSlow):
        return TRY_AGAIN, "too slow; resume from the last cursor"
    if isinstance(error, CrucibleError):
        return close_code(error), close_reason(error)
    log.error("unexpected error", exc_info=error)
    return TROUBLE_CLOSE, "internal error; the details are in server.log"


async def cancel_all(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
