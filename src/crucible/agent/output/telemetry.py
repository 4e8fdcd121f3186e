"""What a job says about itself, gathered until it is sent: points of its series, and how far it is."""

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
    """Fed by the pump and the report file, emptied by the runner; safe between threads, bounded in memory."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._progress = Progress()
        self._told: Mapping[str, object] | None = None
        self._points = PointBuffer()

    def add_printed(self, seen: LineValues) -> None:
        """What a line of the output said."""
        with self._lock:
            now, at = self._clock(), self._wall_clock()
            self._progress = update_progress(self._progress, seen, now)
            for name, value in seen.metrics:
                self._points.add_printed(name, _step(seen), value, at, now)

    def add_reported(self, seen: LineValues) -> None:
        """What the program reported itself; of a name that is also in its output this counts."""
        with self._lock:
            self._progress = update_progress(self._progress, seen, self._clock())
            at = self._wall_clock()
            for name, value in seen.metrics:
                self._points.add_reported(name, _step(seen), value, at)

    def add_sample(self, values: Mapping[str, float]) -> None:
        """Values of now that belong to no step of the job."""
        with self._lock:
            at = self._wall_clock()
            for name, value in values.items():
                self._points.add_reported(name, None, value, at)

    def take_points(self, last: bool = False) -> Points | None:
        """Points not taken yet, as one message can carry them; None when there are none. `last`: all of them."""
        with self._lock:
            return self._points.take(self._clock(), last)

    def take_progress(self) -> Mapping[str, object] | None:
        """How far the job is, when that has changed since the last call."""
        with self._lock:
            progress = self._progress.as_dict()
            if self._progress == Progress() or progress == self._told:
                return None
            self._told = progress
            return progress


def _step(seen: LineValues) -> int | None:
    if seen.step is None:
        return None if seen.epoch is None else int(seen.epoch)
    if seen.within_epoch and seen.epoch is not None and seen.total_steps:
        return int(seen.epoch) * seen.total_steps + seen.step
    return seen.step


class ReportFile:
    """Reads the lines that a job appends to its report file; `noted` hears of the checkpoints it saved.

    `redact` is what becomes of a line before metrics are read out of it.
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
                self._telemetry.add_reported(seen)
        return len(data) == READ_BYTES
