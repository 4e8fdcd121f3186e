"""Messages between the owner of a worker process and one of its children: JSON, prefixed with its length.

Nothing richer than JSON: a child that has read a hostile program is not trusted.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from functools import cache

from pydantic import ConfigDict, TypeAdapter

from crucible.analysis.conclusions.compute.runtime import Reference
from crucible.analysis.source.sources import Sources
from crucible.core.routing.profile import Profile

STARTED = b"s"
"""The first byte a child sends. A request without it reached no child and may be sent to another one."""

PROFILE = b"p"
"""Precedes a profile."""

OUT_OF_MEMORY = b"m"
"""Sent instead of a profile."""

MAX_REQUEST = 2**28
"""Bytes; more than a child has memory for."""

MAX_RESPONSE = 2**20
"""Bytes; a profile takes a few thousand."""

_LENGTH = struct.Struct("!I")
_CHUNK = 2**18
_JSON = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants")


@dataclass(frozen=True)
class Request:
    """A program to analyse, and the hardware that its runtime should refer to."""

    __pydantic_config__ = _JSON

    sources: Sources
    reference: Reference


@dataclass(frozen=True)
class Response:
    """The answer to a request."""

    __pydantic_config__ = _JSON

    profile: Profile


@cache
def requests() -> TypeAdapter[Request]:
    """Return the codec of requests, made at first use."""
    return TypeAdapter(Request)


@cache
def responses() -> TypeAdapter[Response]:
    """Return the codec of responses, made at first use."""
    return TypeAdapter(Response)


def send(connection: socket.socket, message: bytes) -> None:
    """Send a message, prefixed with its length."""
    connection.sendall(_LENGTH.pack(len(message)) + message)


def receive(connection: socket.socket, limit: int, deadline: float | None = None) -> bytes:
    """Return the next message: cut to `limit` + 1 bytes if it is longer, empty if the connection ends within it.

    Raises OSError when the connection breaks or the deadline (on the monotonic clock) passes.
    """
    length = _read(connection, _LENGTH.size, deadline)
    return _read(connection, min(_LENGTH.unpack(length)[0], limit + 1), deadline) if length else b""


def _read(connection: socket.socket, size: int, deadline: float | None) -> bytes:
    """Return exactly `size` bytes, or empty bytes if the connection ends before."""
    data = bytearray()
    while len(data) < size:
        if deadline is not None:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
        chunk = connection.recv(min(size - len(data), _CHUNK))
        if not chunk:
            return b""
        data += chunk
    return bytes(data)
