"""Sockets: one job, or all of them, with replay from a cursor."""

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
from crucible.server.security.auth import STILL_ALLOWED, chosen_protocol
from crucible.server.streams.follow import FollowAll, FollowJob, FrameSender, ReaderTooSlow, StreamTiming
from crucible.server.streams.shared_reads import SharedReads

NORMAL, TRY_AGAIN = 1000, 1013
ACCESS_ENDED = NotAllowed(
    "The token has ended, or what it allows has changed; connect again.",
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
    """Events above `after`, output from `offset` of `attempt` (default: the newest), then what follows.

    Closed with 1000 once the job has ended and all was sent; the last frame is the job itself.
    """
    job = await control.jobs.find(who, id)
    pace = stream_timing(socket)
    follower = FollowJob(_broadcast(socket, control, who), FrameSender(socket, pace.send), job, cursors, pace)
    await _serve(socket, follower, pace)


@router.websocket("/stream")
async def stream_all(socket: WebSocket, control: Control, who: Who, cursor: Annotated[FeedCursor, Query()]) -> None:
    """Events of all jobs with a cursor above `after`, then what follows."""
    pace = stream_timing(socket)
    follower = FollowAll(_broadcast(socket, control, who), FrameSender(socket, pace.send), cursor.after, pace)
    await _serve(socket, follower, pace)


def _broadcast(socket: WebSocket, control: ControlPlane, who: Identity) -> SharedReads:
    return SharedReads(control, socket.app.state.coalescer, who)


def stream_timing(socket: WebSocket) -> StreamTiming:
    pace: StreamTiming = socket.app.state.pace
    return pace


async def _serve(socket: WebSocket, follower: FollowJob | FollowAll, pace: StreamTiming) -> None:
    """Run the follower until it is done or the reader leaves, then close."""
    await socket.accept(chosen_protocol(socket.scope))
    following = asyncio.ensure_future(follower.run())
    leaving = asyncio.ensure_future(_until_closed(socket))
    expelled = asyncio.ensure_future(until_access_ends(socket, pace.recheck))
    try:
        await asyncio.wait({following, leaving, expelled}, return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            await _close(socket, following.exception(), pace)
        elif expelled.done():
            await _close(socket, expelled.exception() or ACCESS_ENDED, pace)
    finally:
        await cancel_all(following, leaving, expelled)


async def _until_closed(socket: WebSocket) -> None:
    """Returns when the reader leaves. Whatever it sends is dropped: nothing is asked over these sockets."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


async def until_access_ends(socket: WebSocket, seconds: float) -> None:
    """Return when the caller's token has ended or its permissions have changed."""
    still = socket.scope.get(STILL_ALLOWED, _always)  # the owner's token is a file, and ends with it
    while True:
        await asyncio.sleep(seconds)
        if not await still():
            return


async def _always() -> bool:
    return True


async def _close(socket: WebSocket, error: BaseException | None, pace: StreamTiming) -> None:
    if isinstance(error, WebSocketDisconnect):
        return
    code, reason = _verdict(error)
    # A reader that is stuck takes the close late or never, and one that left does not take it at all.
    with contextlib.suppress(TimeoutError, WebSocketDisconnect):
        await asyncio.wait_for(socket.close(code, reason), pace.close)


def _verdict(error: BaseException | None) -> tuple[int, str]:
    """How to close the socket of a follower that ended so."""
    if error is None:
        return NORMAL, "the job has ended"
    if isinstance(error, ReaderTooSlow):
        return TRY_AGAIN, "too slow; go on from the last cursor"
    if isinstance(error, CrucibleError):
        return close_code(error), close_reason(error)
    log.error("unexpected error", exc_info=error)
    return TROUBLE_CLOSE, "internal error; the details are in server.log"


async def cancel_all(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
