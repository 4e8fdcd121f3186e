"""Split a job's output into lines, in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

LINE_LIMIT = 65536

# LF, or CRs with the LF after them. Beginning with a set of bytes makes the search fast.
_ENDS = re.compile(rb"[\r\n](?:(?<=\r)\r*\n?)?")


class OutputLine(NamedTuple):
    """One line without its end. `transient`: a carriage return ended it, so a redraw follows."""

    data: bytes
    transient: bool = False

    @property
    def text(self) -> str:
        """The decoded line, for the parser; the log stores `data` unchanged."""
        return self.data.decode("utf-8", "replace")


class LineCutter:
    """Turns chunks into complete lines, and holds at most `limit` bytes of a line.

    A longer line is cut after `limit` bytes, with a marker that says how many bytes are missing. Redraws of a progress
    bar come out as transient lines; blank redraws are dropped.
    """

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._left_out = 0
        self._returned = False

    def feed(self, data: bytes) -> list[OutputLine]:
        if self._returned and data:
            data = b"\r" + data
        # A CR at the end of a chunk may be half of a CR LF, so it waits for the next byte.
        body = data.rstrip(b"\r")
        self._returned = len(body) < len(data) or (self._returned and not data)
        return self._cut(body)

    def finish(self) -> list[OutputLine]:
        """Return the last line if it has no end. The cutter is empty afterwards."""
        self._returned = False
        if not self._kept and not self._left_out:
            return []
        return [OutputLine(self._take())]

    def _cut(self, body: bytes) -> list[OutputLine]:
        lines: list[OutputLine] = []
        at = 0
        for end in _ENDS.finditer(body):
            self._keep(body, at, end.start())
            at = end.end()
            transient = body[at - 1] == 0x0D
            data = self._take()
            if not transient:
                lines.append(OutputLine(data))
            elif data.strip(b"\b \t"):
                lines.append(OutputLine(data.rstrip(b"\b"), True))
        self._keep(body, at, len(body))
        return lines

    def _keep(self, body: bytes, start: int, end: int) -> None:
        room = self._limit - len(self._kept)
        self._kept += body[start : min(end, start + room)]
        self._left_out += max(0, end - start - room)

    def _take(self) -> bytes:
        data = bytes(self._kept)
        if self._left_out:
            data += f" …[line cut: {self._left_out} bytes left out]".encode()
        self._kept.clear()
        self._left_out = 0
        return data


class RedrawThinner:
    """Chooses the lines to store: of a bar's redraws, only the last one before a `flush` or a full line.

    Call `flush` about every second and at the end, so that a long-lived bar is visible.
    """

    def __init__(self) -> None:
        self._held: list[OutputLine] = []

    def thin(self, lines: Iterable[OutputLine]) -> list[OutputLine]:
        stored: list[OutputLine] = []
        for line in lines:
            if line.transient:
                self._held = [line]
            else:
                stored += [*self.flush(), line]
        return stored

    def flush(self) -> list[OutputLine]:
        held, self._held = self._held, []
        return held
