"""Gather a job's metrics and progress until they are sent."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Callable

from crucible.agent.checkpoints.notes import SaveNote, read_note
from crucible.agent.output.parsing import LineValues, OutputParser, Progress, update_progress
from crucible.agent.output.points import PointBuffer, Points

READ_BYTES = 256 * 1024


class Telemetry:
    """Metrics and progress, written by the pump and the report file, taken by the runner. Thread-safe and bounded."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._progress = Progress()
        self._sent: Mapping[str, object] | None = None
        self._points = PointBuffer()

    def add_printed(self, values: LineValues) -> None:
        """Add the values of a line of output."""
        with self._lock:
            now, at = self._clock(), self._wall_clock()
            self._progress = update_progress(self._progress, values, now)
            for name, value in values.metrics:
                self._points.add_printed(name, _step(values), value, at, now)

    def add_reported(self, values: LineValues) -> None:
        """Add reported values. They take precedence over printed values of the same name."""
        with self._lock:
            self._progress = update_progress(self._progress, values, self._clock())
            at = self._wall_clock()
            for name, value in values.metrics:
                self._points.add_reported(name, _step(values), value, at)

    def add_sample(self, values: Mapping[str, float]) -> None:
        """Add current values that belong to no step of the job."""
        with self._lock:
            at = self._wall_clock()
            for name, value in values.items():
                self._points.add_reported(name, None, value, at)

    def take_points(self, last: bool = False) -> Points | None:
        """Return the next points, as many as fit into a message, or None. `last`: do not hold back printed points."""
        with self._lock:
            return self._points.take(self._clock(), last)

    def take_progress(self) -> Mapping[str, object] | None:
        """Return the progress if it has changed since the last call, else None."""
        with self._lock:
            progress = self._progress.as_dict()
            if self._progress == Progress() or progress == self._sent:
                return None
            self._sent = progress
            return progress


def _step(seen: LineValues) -> int | None:
    if seen.step is None:
        return None if seen.epoch is None else int(seen.epoch)
    if seen.within_epoch and seen.epoch is not None and seen.total_steps:
        return int(seen.epoch) * seen.total_steps + seen.step
    return seen.step


class ReportFile:
    """Reads the lines that a job appends to its report file. `noted` is called for each checkpoint that it saved.

    `redact` is applied to a line before metrics are read from it.
    """

    def __init__(self, path: Path, telemetry: Telemetry, noted: Callable[[SaveNote], None] = lambda note: None) -> None:
        self._path = path
        self._telemetry = telemetry
        self._noted = noted
        self._parser = OutputParser()
        self.redact: Callable[[str], str] = lambda line: line
        self._offset = 0
        self._rest = b""

    def read(self) -> bool:
        """Read appended lines, up to READ_BYTES. Return whether there may be more."""
        try:
            # Non-blocking, because opening a named pipe that the job put there would hang.
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
            for values in self._parser.feed(self.redact(line.decode("utf-8", "replace"))):
                self._telemetry.add_reported(values)
        return len(data) == READ_BYTES
