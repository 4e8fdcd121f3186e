"""Drain a job's output as fast as it comes, so that the job never waits for the runner."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import threading
import time
from typing import Callable

from crucible.agent.output.lines import LineCutter, OutputLine, RedrawThinner
from crucible.agent.output.output_log import OutputLog
from crucible.agent.output.parsing import OutputParser
from crucible.agent.output.redaction import Redactor
from crucible.agent.output.telemetry import Telemetry

PIPE_BYTES = 1024 * 1024
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ, which the fcntl module has only from Python 3.10 on
READ_BYTES = 256 * 1024
REDRAW_SECONDS = 1.0
PARSE_SHARE = 0.3
"""Share of each second that may be spent on parsing the output."""


def make_pipe() -> tuple[int, int]:
    """Return a pipe with a buffer of PIPE_BYTES, if the system allows it, so that bursts do not block the job."""
    reading, writing = os.pipe()
    with contextlib.suppress(OSError):
        fcntl.fcntl(writing, _SET_PIPE_SIZE, PIPE_BYTES)
    return reading, writing


class Pump(threading.Thread):
    """Reads `descriptor` to its end (or until `stop`), writes lines to `log`, and parses them for metrics.

    The redactor comes first, so neither the log nor the parser sees a secret. It never holds back a complete line.
    """

    def __init__(
        self,
        descriptor: int,
        log: OutputLog,
        telemetry: Telemetry,
        wake: Callable[[], None] = lambda: None,
        redactor: Redactor | None = None,
    ) -> None:
        super().__init__(name="pump", daemon=True)
        self._descriptor = descriptor
        self._log = log
        self._telemetry = telemetry
        self._wake = wake
        self._redactor = redactor
        self._cutter = LineCutter()
        self._thinner = RedrawThinner()
        self._parser = OutputParser()
        self._flushed_at = self._second = time.monotonic()
        self._parsed_for = 0.0
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Read what is in the pipe, then end, even if another process still holds the writing end."""
        self._stopping.set()

    def run(self) -> None:
        try:
            while self._turn():
                pass
        finally:
            if self._redactor is not None:
                self._take(self._cutter.feed(self._redactor.finish()))
            self._take(self._cutter.finish())
            self._keep(self._thinner.flush())
            self._log.finish()
            os.close(self._descriptor)
            self._wake()

    def _turn(self) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], 0.0 if self._stopping.is_set() else 0.2)
        if ready:
            data = os.read(self._descriptor, READ_BYTES)
            if not data:
                return False
            self._take(self._cutter.feed(data if self._redactor is None else self._redactor.feed(data)))
        elif self._stopping.is_set():
            return False
        self._housekeep()
        return True

    def _housekeep(self) -> None:
        now = time.monotonic()
        if now - self._flushed_at >= REDRAW_SECONDS:
            self._flushed_at = now
            self._keep(self._thinner.flush())
        self._log.cut_if_due()

    def _take(self, lines: list[OutputLine]) -> None:
        self._parse(lines)
        self._keep(self._thinner.thin(lines))

    def _keep(self, lines: list[OutputLine]) -> None:
        if lines:
            self._log.write([line.data for line in lines])

    def _parse(self, lines: list[OutputLine]) -> None:
        for line in lines:
            begin = time.monotonic()
            if begin - self._second >= 1.0:
                self._second, self._parsed_for = begin, 0.0
            if self._parsed_for >= PARSE_SHARE:
                return
            for values in self._parser.feed(line.text):
                self._telemetry.add_printed(values)
            self._parsed_for += time.monotonic() - begin
