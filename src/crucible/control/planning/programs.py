"""Read the source of a job's program from its bundle."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import BinaryIO, cast

from crucible.core.routing.plan_request import MAX_FILE, MAX_FILES, MOST, READ
from crucible.wire.files.tar_stream import FILES, Member, read_members

MAX_UNPACKED = 200_000_000
"""Bytes of a bundle that are scanned: it may hold large data beside the program."""


def read_program(pieces: Iterator[bytes], command: Sequence[str]) -> dict[str, str] | None:
    """Return the program's files by path, within limits; None if the command starts none of them.

    Raises BadArchive.
    """
    found: dict[str, str] = {}
    left, unpacked = MOST, 0
    for member in read_members(cast(BinaryIO, io.BufferedReader(_Pieces(pieces)))):
        unpacked += member.size
        if unpacked > MAX_UNPACKED:
            break
        started = member.name in command
        if _is_text(member) and (started or (len(found) < MAX_FILES - 1 and member.size <= left)):
            found[member.name] = b"".join(member.content).decode(errors="replace")
            left -= 0 if started else member.size
        else:
            _pass_over(member)
    return found if any(word in found for word in command) else None


def _is_text(member: Member) -> bool:
    return member.kind in FILES and member.name.endswith(READ) and member.size <= MAX_FILE


def _pass_over(member: Member) -> None:
    for _ in member.content:
        pass


class _Pieces(io.RawIOBase):
    """A readable file over an iterator of bytes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, into: object) -> int:
        room = memoryview(cast(bytearray, into))
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        count = min(len(room), len(self._rest))
        room[:count], self._rest = self._rest[:count], self._rest[count:]
        return count
