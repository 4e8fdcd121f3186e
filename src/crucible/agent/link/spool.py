"""The spool: a runner's messages on disk, numbered and checksummed, until they are acknowledged.

The folder holds segment files named by the number of their first message. A record is its length and CRC, then JSON.
The newest segment is never removed, so that numbering continues after a restart. A torn record at its end was never
sent, because nothing is sent before it is synced.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Callable

from crucible.agent.files import sync_folder, write_at, write_file
from crucible.wire.documents.messages import Message, MessageKind

SEGMENT_BYTES = 4 * 1024 * 1024
THIN_ABOVE = 64 * 1024 * 1024
BATCH_BYTES = 1024 * 1024
BATCH_MESSAGES = 2000
MAX_RECORD = 2 * 1024 * 1024

_HEAD = struct.Struct(">II")
_DURABLE = frozenset(
    {
        MessageKind.STAGING,
        MessageKind.STARTED,
        MessageKind.EXITED,
        MessageKind.ENDED,
        MessageKind.ARTIFACT,
        MessageKind.CHECKPOINT,
        MessageKind.LOG,
        MessageKind.RESULT,
    }
)


@dataclass(frozen=True)
class _Position:
    """Where message `n` is stored."""

    n: int
    segment: Path
    offset: int


class Spool:
    """Usable from several threads. Recovers the state of an earlier runner when it is made."""

    def __init__(
        self, folder: Path, *, thin_above: int = THIN_ABOVE, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._folder = folder
        self._thin_above = thin_above
        self._wall_clock = wall_clock
        self._lock = threading.RLock()
        folder.mkdir(mode=0o700, exist_ok=True)
        self._segments = sorted(folder.glob("*.seg"))
        self._acked = self._read_acked()
        self._next = self._open_last()
        self._unsynced = False
        self._read_at: _Position | None = None
        self.dropped = 0

    @property
    def last(self) -> int:
        """The number of the newest message; 0 if there is none."""
        return self._next - 1

    @property
    def first(self) -> int:
        """The number of the oldest message that may still be stored."""
        with self._lock:
            return _first(self._segments[0])

    @property
    def acked(self) -> int:
        return self._acked

    @property
    def is_delivered(self) -> bool:
        with self._lock:
            return self._acked >= self.last

    def append(self, kind: MessageKind, data: Mapping[str, object]) -> int | None:
        """Store a message and return its number; None if it was dropped because too much is unsent."""
        with self._lock:
            kept = self._thin(kind, data)
            if kept is None:
                self.dropped += 1
                return None
            self._write(self._record(kind, kept), sync=kind in _DURABLE)
            return self.last

    def unsent(self) -> list[Message]:
        """Return the next batch of unacknowledged messages, synced to disk."""
        with self._lock:
            if self.is_delivered:
                return []
            self._sync()
            found, size = [], 0
            for message, end in self._messages_from(self._acked + 1):
                found.append(message)
                size += end
                if size >= BATCH_BYTES or len(found) >= BATCH_MESSAGES:
                    break
            return found

    def acknowledge(self, n: int) -> None:
        """Record that the receiver has everything up to `n`. A lower `n` than before sends again from there."""
        with self._lock:
            self._acked = min(n, self.last)
            write_file(self._folder / "acked", str(self._acked).encode())
            while len(self._segments) > 1 and _first(self._segments[1]) <= self._acked + 1:
                self._segments.pop(0).unlink()

    def all_messages(self) -> Iterator[Message]:
        """Yield every message on disk, sent or not."""
        with self._lock:
            for segment in self._segments:
                for message, _, _ in _records(segment, 0):
                    yield message

    def close(self) -> None:
        with self._lock:
            self._sync()
            self._file.close()

    # Writing

    def _open_last(self) -> int:
        if not self._segments:
            self._begin_segment(1)
            return 1
        newest = self._segments[-1]
        after, good = _first(newest), 0
        for message, _, end in _records(newest, 0):
            after, good = message.n + 1, end
        self._file: BinaryIO = open(newest, "r+b", buffering=0)  # noqa: SIM115
        self._file.truncate(good)  # the rest is a record that a crash tore
        self._end = good
        os.fsync(self._file.fileno())
        return after

    def _begin_segment(self, first: int) -> None:
        path = self._folder / f"{first:012d}.seg"
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115
        self._end = 0
        self._segments.append(path)
        sync_folder(self._folder)

    def _record(self, kind: MessageKind, data: Mapping[str, object]) -> bytes:
        message = [self._next, kind.value, self._wall_clock(), dict(data)]
        text = json.dumps(message, separators=(",", ":"), allow_nan=False)
        body = text.encode()
        if len(body) > MAX_RECORD:
            raise ValueError(f"a {kind.value} message of {len(body)} bytes is too long")
        return _HEAD.pack(len(body), zlib.crc32(body)) + body

    def _write(self, record: bytes, *, sync: bool) -> None:
        """Append the whole record, or leave the spool as it was.

        `_end` moves only after success: a half-written record is overwritten by the next one.
        """
        if self._end + len(record) > SEGMENT_BYTES and self._end > 0:
            self._sync()
            self._file.close()
            self._begin_segment(self._next)
        write_at(self._file.fileno(), record, self._end)
        self._unsynced = True
        if sync:
            self._sync()
        self._end += len(record)
        self._next += 1

    def _sync(self) -> None:
        if self._unsynced:
            os.fsync(self._file.fileno())
            self._unsynced = False

    def _size(self) -> int:
        return (len(self._segments) - 1) * SEGMENT_BYTES + self._end

    def _thin(self, kind: MessageKind, data: Mapping[str, object]) -> Mapping[str, object] | None:
        """Return what to keep of a message if much is unsent: the last point of each series, and no progress."""
        if kind not in (MessageKind.POINTS, MessageKind.PROGRESS) or self._size() <= self._thin_above:
            return data
        series = data.get("series")
        if kind is MessageKind.PROGRESS or self._size() > 2 * self._thin_above or not isinstance(series, dict):
            return None
        self.dropped += 1
        return {"series": {name: points[-1:] for name, points in series.items()}}

    # Reading

    def _read_acked(self) -> int:
        try:
            return int((self._folder / "acked").read_bytes())
        except (FileNotFoundError, ValueError):
            return 0

    def _messages_from(self, n: int) -> Iterator[tuple[Message, int]]:
        """Yield messages from `n` on with their sizes. Remembers the position: the next call usually starts there."""
        position = self._read_at if self._read_at is not None and self._read_at.n == n else self._find(n)
        for segment in self._segments[self._segments.index(position.segment) :]:
            start = position.offset if segment == position.segment else 0
            for message, begin, end in _records(segment, start):
                if message.n >= n:
                    self._read_at = _Position(message.n + 1, segment, end)
                    yield message, end - begin

    def _find(self, n: int) -> _Position:
        earlier = [segment for segment in self._segments if _first(segment) <= n]
        segment = earlier[-1] if earlier else self._segments[0]
        return _Position(_first(segment), segment, 0)


def _first(segment: Path) -> int:
    return int(segment.stem)


def _records(segment: Path, offset: int) -> Iterator[tuple[Message, int, int]]:
    """Yield messages with their start and end offsets, up to the first that is not whole."""
    with open(segment, "rb") as file:
        file.seek(offset)
        while True:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                return
            size, crc = _HEAD.unpack(head)
            body = file.read(size) if size <= MAX_RECORD else b""
            if len(body) < size or size > MAX_RECORD or zlib.crc32(body) != crc:
                return
            message = _message(body)
            if message is None:
                return
            yield message, offset, offset + _HEAD.size + size
            offset += _HEAD.size + size


def _message(body: bytes) -> Message | None:
    """Return the message; None if it is invalid. The job runs as the same user, and could write a valid checksum."""
    try:
        n, kind, at, data = json.loads(body)
        return Message(int(n), MessageKind(kind), float(at), dict(data))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
