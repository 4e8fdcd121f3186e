"""Watch a running job, and send messages about its output, its report file and its resource usage."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Callable

from crucible.agent.checkpoints.notes import SaveNote
from crucible.agent.link.reporter import Reporter
from crucible.agent.output.output_log import OutputLog
from crucible.agent.output.pump import Pump
from crucible.agent.output.redaction import Redactor
from crucible.agent.output.telemetry import ReportFile, Telemetry
from crucible.agent.process.meter import Meter
from crucible.agent.process.user_process import UserProcess
from crucible.wire.documents.messages import MessageKind

SEND_SECONDS = 0.5
DRAIN_SECONDS = 5.0


class Monitor:
    """`report` is the file that the job appends to; `on_save` is called for each checkpoint that the job saved."""

    def __init__(self, report: Path, log: OutputLog, reporter: Reporter, on_save: Callable[[SaveNote], None]) -> None:
        self._telemetry = Telemetry()
        self._report = ReportFile(report, self._telemetry, on_save)
        self._log = log
        self._reporter = reporter
        self._pump: Pump | None = None
        self._meter: Meter | None = None
        self._sent_at = 0.0

    @property
    def started(self) -> bool:
        return self._meter is not None

    def redact(self, redactor: Redactor) -> None:
        """Mask secrets in the report file before metrics are read from it."""
        self._report.redact = redactor.text

    def start(self, user: UserProcess, output: int, gpus: tuple[int, ...], wake: Callable[[], None]) -> None:
        """Start watching. `output` is the reading end of the job's pipe; `wake` is called when the output ends."""
        assert user.confinement is not None
        self._pump = Pump(output, self._log, self._telemetry, wake, self._reporter.redactor)
        self._pump.start()
        self._meter = Meter(user.pid, user.confinement, self._telemetry, gpus)

    def tick(self) -> None:
        """Sample and send what is due. Call it often while the job runs."""
        if self._meter is not None:
            self._meter.tick()
        if time.monotonic() - self._sent_at >= SEND_SECONDS:
            self._sent_at = time.monotonic()
            self._send()

    def finish(self) -> None:
        """Read the rest of the output and send it. Call it when all processes of the job have ended.

        The wait is bounded, because a process outside the job may hold the pipe open.
        """
        if self._pump is not None:
            self._pump.join(DRAIN_SECONDS)
            self._pump.stop()
            self._pump.join(DRAIN_SECONDS)
        self._log.finish()
        self._send(last=True)

    def _send(self, last: bool = False) -> None:
        while self._report.read() and last:
            pass
        points = self._telemetry.take_points(last)
        while points is not None:
            self._reporter.send(MessageKind.POINTS, {"series": points})
            points = self._telemetry.take_points(last)
        progress = self._telemetry.take_progress()
        if progress is not None:
            self._reporter.send(MessageKind.PROGRESS, progress)
