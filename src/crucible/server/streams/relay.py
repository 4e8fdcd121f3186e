"""Relay the frames of a session between two sockets, with at most one frame in flight in each direction."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from starlette.websockets import WebSocket, WebSocketDisconnect

from crucible.control.agents.sessions import AgentSession, SessionStream
from crucible.core.errors import Unreachable
from crucible.wire.http.sessions import FROM_AGENT, FROM_CLIENT, WINDOW, BadFrame, FrameKind, frame_kind

MAX_AHEAD = 2 * WINDOW
"""Maximum bytes kept from a client before its session begins: data it may send without credit, and terminal sizes."""
SEND_SECONDS = 30.0
"""Timeout of a send. Credit bounds what is in flight, so a socket that takes nothing for this long is stuck."""

LAST_FRAMES_SECONDS = 5.0
"""How long to wait for what an agent sent before it stopped taking frames."""


class ConnectionLost(Exception):
    """The peer takes no more frames."""


class SocketConnection:
    """A session stream over a socket; each frame is one binary message."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._ahead: deque[bytes | None] = deque()

    async def send(self, frame: bytes) -> None:
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._socket.send_bytes(frame)
        except (TimeoutError, WebSocketDisconnect, RuntimeError) as error:  # RuntimeError: it is closed already
            raise ConnectionLost(str(error)) from error

    async def receive(self) -> bytes | None:
        return self._ahead.popleft() if self._ahead else await self._read()

    async def wait_closed(self) -> None:
        """Return once the peer has closed. Frames until then are kept; raises BadFrame for more than it may send."""
        kept = 0
        while (frame := await self._read()) is not None:
            self._ahead.append(frame)
            kept += len(frame)
            if kept > MAX_AHEAD:
                raise BadFrame("more data than there was credit for")
        self._ahead.append(None)

    async def _read(self) -> bytes | None:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        frame: bytes | None = message.get("bytes")
        if frame is None:
            raise BadFrame("frames are binary messages")
        return frame

    async def close(self, seconds: float) -> None:
        """Close the socket, waiting for `seconds` at most: a stuck peer never answers, and one that left cannot."""
        with contextlib.suppress(TimeoutError, WebSocketDisconnect, RuntimeError):
            async with asyncio.timeout(seconds):
                await self._socket.close()


async def join_session(session: AgentSession, socket: WebSocket) -> None:
    """Connect the agent's socket to the session, and close it when the session is over."""
    stream = SocketConnection(socket)
    if not session.agent_stream.done():
        session.agent_stream.set_result(stream)
        await session.closed.wait()
    await stream.close(SEND_SECONDS)


async def relay_frames(client: SessionStream, agent: SessionStream) -> None:
    """Relay frames until the session is over or the client leaves.

    Raises BadFrame for a frame that its sender may not send, Unreachable if the agent leaves before the end.
    """
    up = asyncio.ensure_future(_forward(client, agent, FROM_CLIENT))
    down = asyncio.ensure_future(_forward(agent, client, FROM_AGENT))
    try:
        await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        if not down.done():
            if not isinstance(up.exception(), ConnectionLost):
                up.result()
                return
            # The agent takes no more frames, but what it sent before, such as OVER, may still be on its way.
            await asyncio.wait({down}, timeout=LAST_FRAMES_SECONDS)
        if not down.done():
            raise agent_lost()
        with contextlib.suppress(ConnectionLost):  # the client has gone
            if not down.result():
                raise agent_lost()
    finally:
        for task in (up, down):
            task.cancel()
        await asyncio.gather(up, down, return_exceptions=True)


def agent_lost() -> Unreachable:
    return Unreachable(
        "The connection to the job's machine was lost.",
        why="The machine, its agent or the network failed.",
        fix="Check the job with `crucible status`, then try again.",
    )


async def _forward(source: SessionStream, target: SessionStream, allowed: frozenset[FrameKind]) -> bool:
    """Forward frames; return True after an OVER frame, False if the source left. Raises BadFrame, ConnectionLost."""
    while (frame := await source.receive()) is not None:
        kind = frame_kind(frame, allowed)
        await target.send(frame)
        if kind is FrameKind.OVER:
            return True
    return False
