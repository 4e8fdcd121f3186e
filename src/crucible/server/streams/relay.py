"""The relay of a session: frames from one socket to the other and back, never more than one of each on the way."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from starlette.websockets import WebSocket, WebSocketDisconnect

from crucible.control.agents.sessions import AgentSession, SessionStream
from crucible.core.errors import Unreachable
from crucible.wire.http.sessions import FROM_AGENT, FROM_CLIENT, WINDOW, BadFrame, FrameKind, frame_kind

MAX_AHEAD = 2 * WINDOW
"""Bytes kept from a client before its session begins: what it may send without credit, and terminal sizes."""
SEND_SECONDS = 30.0
"""Credit bounds what is on the way, so a socket that takes nothing for so long is stuck."""


class ConnectionLost(Exception):
    """The other end takes no more frames."""


class SocketConnection:
    """A socket as a line; frames are its binary messages."""

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
        """One that is stuck takes the close late or never, and one that left does not take it at all."""
        with contextlib.suppress(TimeoutError, WebSocketDisconnect, RuntimeError):
            async with asyncio.timeout(seconds):
                await self._socket.close()


async def join_session(session: AgentSession, socket: WebSocket) -> None:
    """The agent's socket joins the session, and is closed when that is over."""
    line = SocketConnection(socket)
    if not session.agent_stream.done():
        session.agent_stream.set_result(line)
        await session.closed.wait()
    await line.close(SEND_SECONDS)


async def relay_frames(client: SessionStream, agent: SessionStream) -> None:
    """Pass frames on until the session is over or the client leaves.

    Raises BadFrame for what either may not send, Unreachable where the agent goes before it has said how it ended.
    """
    up = asyncio.ensure_future(_forward(client, agent, FROM_CLIENT))
    down = asyncio.ensure_future(_forward(agent, client, FROM_AGENT))
    try:
        await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        if down.done():
            if not down.result():
                raise Unreachable(
                    "The line to the job's machine broke off.",
                    why="The machine, its agent or the way to it has gone.",
                    fix="See how the job does with `crucible status`; then try again.",
                )
        else:
            up.result()
    finally:
        for task in (up, down):
            task.cancel()
        await asyncio.gather(up, down, return_exceptions=True)


async def _forward(source: SessionStream, target: SessionStream, allowed: frozenset[FrameKind]) -> bool:
    """Forward frames; return True after an OVER frame, False if either end has gone."""
    with contextlib.suppress(ConnectionLost):
        while (frame := await source.receive()) is not None:
            kind = frame_kind(frame, allowed)
            await target.send(frame)
            if kind is FrameKind.OVER:
                return True
    return False
