"""A job's output on disk, as numbered segments, until it is uploaded.

The folder holds finished segments `<n>-<start>-<lines>.log` and the open one `<n>-<start>.part`. A segment has the same
bytes however often it is sent, and is removed once it is stored and announced, so the disk holds only what is unsent.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Callable

from crucible.agent.files import write_at
from crucible.agent.link.channel import LogSegment
from crucible.wire.documents.messages import Message, MessageKind

SEGMENT_BYTES = 512 * 1024
TAIL_BYTES = 64 * 1024
LOW_DISK = 256 * 1024 * 1024
EARLY_SECONDS = 10.0
EARLY_EVERY = 1.0
LATER_EVERY = 5.0


@dataclass(frozen=True)
class OutputLimits:
    """How much output is kept. `free` returns the free bytes of the disk that holds a folder."""

    output_bytes: int | None = None
    low_disk: int = LOW_DISK
    free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free


def last_announced(messages: Iterable[Message]) -> tuple[int, int]:
    """Return number and end of the last log segment that the messages announce."""
    last = (0, 0)
    for message in messages:
        if message.kind is MessageKind.LOG:
            last = (int(str(message.data["n"])), int(str(message.data["end"])))
    return last


class OutputLog:
    """Written by the pump, sent by the uploader; each call is atomic.

    `note` is called once per reason when output is dropped. `announced` is the number and end of the last segment that
    an earlier runner announced; those are not sent again.
    """

    def __init__(
        self,
        folder: Path,
        note: Callable[[str], None],
        limits: OutputLimits | None = None,
        announced: tuple[int, int] = (0, 0),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._note = note
        self._limits = limits or OutputLimits()
        self._clock = clock
        self._lock = threading.RLock()
        self._began = clock()
        self._opened_at = self._checked_at = self._began
        self._is_full = False
        self._left_out = 0
        self._over = False
        self._file: BinaryIO | None = None
        self._n, self._start = self._recover(announced)
        self._size = self._lines = 0
        self._tail = b""
        self._tail_end = self._tail_sent = self._start

    @property
    def end(self) -> int:
        """The number of bytes the attempt has written."""
        with self._lock:
            return self._start + self._size

    def write(self, lines: Sequence[bytes]) -> None:
        """Store lines, without their ends. On a full disk they are dropped and counted, so that the job never waits."""
        with self._lock:
            if self._refuses(sum(len(line) + 1 for line in lines)):
                self._left_out += len(lines)
                return
            self._append(lines)

    def cut_if_due(self) -> None:
        """Finish the open segment if it is old enough."""
        with self._lock:
            every = EARLY_EVERY if self._clock() - self._began < EARLY_SECONDS else LATER_EVERY
            if self._size and self._clock() - self._opened_at >= every:
                self._cut()

    def finish(self) -> None:
        with self._lock:
            if not self._over:
                self._keep(())
            self._cut()

    def unsent(self) -> LogSegment | None:
        """Return the oldest finished segment, or None."""
        with self._lock:
            names = sorted(name for name in os.listdir(self._folder) if name.endswith(".log"))
            return _segment(self._folder / names[0]) if names else None

    def remove_segment(self, segment: LogSegment) -> None:
        """Remove a segment that is stored and announced."""
        with self._lock:
            segment.path.unlink()

    @property
    def is_sent(self) -> bool:
        with self._lock:
            return not self._size and self.unsent() is None

    def tail(self) -> tuple[int, bytes] | None:
        """Return the output since the last call, at most its last 64 KiB, with its offset; None if there is none."""
        with self._lock:
            start = max(self._tail_sent, self._tail_end - len(self._tail))
            if start >= self._tail_end:
                return None
            self._tail_sent = self._tail_end
            return start, self._tail[len(self._tail) - (self._tail_end - start) :]

    # Writing

    def _append(self, lines: Sequence[bytes]) -> None:
        batch: list[bytes] = []
        size = 0
        for line in lines:
            batch.append(line)
            size += len(line) + 1
            if self._size + size >= SEGMENT_BYTES:
                self._keep(batch)
                self._cut()
                batch, size = [], 0
        self._keep(batch)

    def _keep(self, lines: Sequence[bytes]) -> None:
        """Write lines, after a marker that counts those dropped before them."""
        marks = [_marker(f"{self._left_out} lines left out: the disk was full")] if self._left_out else []
        kept = [*marks, *lines]
        if not kept:
            return
        data = b"\n".join(kept) + b"\n"
        try:
            self._write(data)
        except OSError as error:
            self._disk_failed(error, len(lines))
            return
        self._left_out = 0
        self._size += len(data)
        self._lines += len(kept)
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        self._tail_end = self._start + self._size

    def _write(self, data: bytes) -> None:
        if self._size >= 2 * SEGMENT_BYTES:
            raise OSError(errno.EFBIG, "a segment cannot be finished")
        write_at(self._open().fileno(), data, self._size)

    def _open(self) -> BinaryIO:
        if self._file is None:
            path = self._folder / f"{self._n:08d}-{self._start}.part"
            # Unbuffered, so that output read from the job survives a kill of this process.
            self._file = open(path, "wb", buffering=0)  # noqa: SIM115
            self._opened_at = self._clock()
        return self._file

    def _cut(self) -> None:
        """Finish the open segment. If the disk refuses, it stays open and is finished later."""
        if self._file is None:
            return
        try:
            self._name_segment()
        except OSError as error:
            self._opened_at = self._clock()
            self._tell_full(error)
            return
        self._file.close()
        self._file = None
        if not self._size:
            return
        self._start += self._size
        self._n += 1
        self._size = self._lines = 0

    def _name_segment(self) -> None:
        part = self._folder / f"{self._n:08d}-{self._start}.part"
        if not self._size:
            part.unlink()
            return
        os.truncate(part, self._size)
        os.rename(part, self._folder / f"{self._n:08d}-{self._start}-{self._lines}.log")

    def _disk_failed(self, error: OSError, lines: int) -> None:
        self._left_out += lines
        if self._file is not None:
            with contextlib.suppress(OSError):  # the next write begins at the same offset
                os.truncate(self._file.name, self._size)
        self._tell_full(error)

    def _tell_full(self, error: OSError) -> None:
        if not self._is_full:
            self._is_full = True
            self._note(f"output is being left out: {error.strerror}")

    # Limits

    def _refuses(self, size: int) -> bool:
        if self._over:
            return True
        limit = self._limits.output_bytes
        if limit is not None and self.end + size > limit:
            self._over = True
            text = f"output beyond {limit} bytes is left out"
            self._append([_marker(text)])
            self._note(text)
            return True
        return self._disk_is_short()

    def _disk_is_short(self) -> bool:
        if self._clock() - self._checked_at < 1.0:
            return self._is_full
        self._checked_at = self._clock()
        try:
            free = self._limits.free(self._folder)
        except OSError:  # the folder is lost, or being moved; the open segment can be written meanwhile
            return self._is_full
        was_full, self._is_full = self._is_full, free < self._limits.low_disk
        if self._is_full and not was_full:
            self._note("output is being left out: the disk is nearly full")
        return self._is_full

    # After a restart

    def _recover(self, announced: tuple[int, int]) -> tuple[int, int]:
        """Finish segments that an earlier runner left open. Return number and start of the next segment.

        An incomplete last line gets an end, so that every segment consists of whole lines.
        """
        for part in sorted(self._folder.glob("*.part")):
            data = part.read_bytes()
            whole = data if not data or data.endswith(b"\n") else data + b"\n"
            part.write_bytes(whole)
            n, start = part.stem.split("-")
            if whole:
                part.rename(self._folder / f"{n}-{start}-{whole.count(10)}.log")
            else:
                part.unlink()
        finished = [_segment(path) for path in sorted(self._folder.glob("*.log"))]
        for segment in finished:
            if segment.n <= announced[0]:
                segment.path.unlink()
        last = max([announced, *((segment.n, segment.end) for segment in finished)])
        return last[0] + 1, last[1]


def _segment(path: Path) -> LogSegment:
    n, start, lines = (int(part) for part in path.stem.split("-"))
    return LogSegment(n, start, start + path.stat().st_size, lines, path)


def _marker(text: str) -> bytes:
    return f"[crucible] {text}".encode()
