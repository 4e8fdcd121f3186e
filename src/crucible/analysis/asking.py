"""A question to another process and its answer, as bytes.

Both sides speak JSON: what has read a hostile program is not trusted with more.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from functools import cache

from pydantic import ConfigDict, TypeAdapter

from crucible.analysis.conclusions.runtime import Reference
from crucible.analysis.sources import Sources
from crucible.core.profile import Profile

TAKEN = b"t"
"""Sent first, by whoever takes the question; what follows is about the program."""

ANSWERED = b"a"
"""Before an answer."""

NO_ROOM = b"n"
"""Instead of an answer: memory ran out."""

AT_REST = b"r"
"""After an answer to somebody who may ask again: now he may."""

KNOCK = b"?"
"""He does; who is still there takes the question."""

MAX_ANSWER = 2**20
"""Bytes; a profile is a few thousand."""

MAX_QUESTION = 2**28
"""More than a child has memory for."""

_LENGTH = struct.Struct("!I")
_PIECE = 2**18
_PLAIN = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants")


@dataclass(frozen=True)
class Question:
    __pydantic_config__ = _PLAIN

    sources: Sources
    reference: Reference
    more: bool = False
    """Whether another may follow, from the same asker."""


@dataclass(frozen=True)
class Answer:
    __pydantic_config__ = _PLAIN

    profile: Profile


@cache
def questions() -> TypeAdapter[Question]:
    return TypeAdapter(Question)


@cache
def answers() -> TypeAdapter[Answer]:
    return TypeAdapter(Answer)


def send(line: socket.socket, data: bytes) -> None:
    """With its length before it."""
    line.sendall(_LENGTH.pack(len(data)) + data)


def receive(line: socket.socket, most: int, deadline: float | None = None) -> bytes:
    """What was sent; `most` and a byte of it where it is longer, and nothing where the line ends before its end.

    Raises OSError when the line breaks, or when the deadline (on the monotonic clock) passes.
    """
    length = _exactly(line, _LENGTH.size, deadline)
    return _exactly(line, min(_LENGTH.unpack(length)[0], most + 1), deadline) if length else b""


def _exactly(line: socket.socket, size: int, deadline: float | None) -> bytes:
    found = bytearray()
    while len(found) < size:
        if deadline is not None:
            line.settimeout(max(0.001, deadline - time.monotonic()))
        piece = line.recv(min(size - len(found), _PIECE))
        if not piece:
            return b""
        found += piece
    return bytes(found)
