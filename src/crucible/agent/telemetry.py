"""What a job says about itself, gathered until it is sent: points of its series, and how far it is."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Callable, Union

from crucible.agent.checkpoints.notes import Note, read_note
from crucible.agent.output import OutputParser, Progress, Seen, fold

MAX_PENDING = 20_000
MESSAGE_POINTS = 1000
MAX_SERIES = 1000
MAX_NAME = 200
READ_BYTES = 256 * 1024

Value = Union[None, float, str]
Points = dict[str, list[list[object]]]


class Telemetry:
    """Fed by the pump and the report file, emptied by the runner; safe between threads, bounded in memory."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._progress = Progress()
        self._told: Mapping[str, object] | None = None
        self._points: Points = {}
        self._pending = 0
        self._counts: dict[str, int] = {}
        self._reported: set[str] = set()

    def see(self, seen: Seen, *, reported: bool = False) -> None:
        """`reported`: said in so many words. What is printed under the same name then adds nothing to its series.

        The two seldom mean the same: a loss that is printed is often a mean over many steps.
        """
        with self._lock:
            self._progress = fold(self._progress, seen, self._clock())
            at = self._wall_clock()
            for name, value in seen.metrics:
                if reported:
                    self._count_on(name)
                if reported or name not in self._reported:
                    self._add(name, _step(seen), value, at)

    def sample(self, values: Mapping[str, float]) -> None:
        """Values of now that belong to no step of the job."""
        with self._lock:
            at = self._wall_clock()
            for name, value in values.items():
                self._add(name, None, value, at)

    def take_points(self) -> Points | None:
        """Points not taken yet, as one message can carry them; None when there are none."""
        with self._lock:
            taken: Points = {}
            room = MESSAGE_POINTS
            for name in list(self._points):
                if room <= 0:
                    break
                points = self._points.pop(name)
                taken[name], left = points[:room], points[room:]
                room -= len(taken[name])
                if left:
                    self._points[name] = left
            self._pending -= MESSAGE_POINTS - room
            return taken or None

    def take_progress(self) -> Mapping[str, object] | None:
        """How far the job is, when that has changed since the last call."""
        with self._lock:
            progress = self._progress.as_dict()
            if self._progress == Progress() or progress == self._told:
                return None
            self._told = progress
            return progress

    def _count_on(self, name: str) -> None:
        """From the first report of it on; what was printed under this name and is not sent yet is forgotten."""
        if name not in self._reported and len(self._reported) < MAX_SERIES:
            self._reported.add(name)
            self._pending -= len(self._points.pop(_series(name), ()))

    def _add(self, name: str, step: int | None, value: float, at: float) -> None:
        name = _series(name)
        if name not in self._counts and len(self._counts) >= MAX_SERIES:
            return
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        self._points.setdefault(name, []).append([count if step is None else step, _json(value), at])
        self._pending += 1
        if self._pending > MAX_PENDING:
            self._halve()

    def _halve(self) -> None:
        """A job that reports faster than can be sent keeps every other point."""
        self._points = {name: points[-1::-2][::-1] for name, points in self._points.items()}
        self._pending = sum(len(points) for points in self._points.values())


def _series(name: str) -> str:
    return name[:MAX_NAME].encode("utf-8", "replace").decode()


def _step(seen: Seen) -> int | None:
    if seen.step is None:
        return None if seen.epoch is None else int(seen.epoch)
    if seen.within_epoch and seen.epoch is not None and seen.total_steps:
        return int(seen.epoch) * seen.total_steps + seen.step
    return seen.step


def _json(value: float) -> Value:
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


class ReportFile:
    """Reads the lines that a job appends to its report file; `noted` hears of the checkpoints it saved.

    `redact` is what becomes of a line before metrics are read out of it.
    """

    def __init__(self, path: Path, telemetry: Telemetry, noted: Callable[[Note], None] = lambda note: None) -> None:
        self._path = path
        self._telemetry = telemetry
        self._noted = noted
        self._parser = OutputParser()
        self.redact: Callable[[str], str] = lambda line: line
        self._offset = 0
        self._rest = b""

    def read(self) -> bool:
        """Take in what was appended, up to a bound; True when there is more."""
        try:
            # Not to wait: the job may have put a pipe there.
            with open(os.open(self._path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                file.seek(self._offset)
                data = file.read(READ_BYTES)
        except OSError:
            return False
        self._offset += len(data)
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) < READ_BYTES else b""
        for line in lines:
            note = read_note(line)
            if note is not None:
                self._noted(note)
            for seen in self._parser.feed(self.redact(line.decode("utf-8", "replace"))):
                self._telemetry.see(seen, reported=True)
        return len(data) == READ_BYTES
