"""What is noticed of a job while it runs, and told: its output, what it reports, what it uses."""

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

TELL_SECONDS = 0.5
DRAIN_SECONDS = 5.0


class Monitor:
    """`report`: the file that the job appends to; `noted` hears of the checkpoints it saved."""

    def __init__(self, report: Path, log: OutputLog, voice: Reporter, noted: Callable[[SaveNote], None]) -> None:
        self._telemetry = Telemetry()
        self._report = ReportFile(report, self._telemetry, noted)
        self._log = log
        self._voice = voice
        self._pump: Pump | None = None
        self._meter: Meter | None = None
        self._told_at = 0.0

    @property
    def started(self) -> bool:
        return self._meter is not None

    def redact(self, redactor: Redactor) -> None:
        """Before metrics are read out of what the job reports."""
        self._report.redact = redactor.text

    def start(self, user: UserProcess, output: int, gpus: tuple[int, ...], wake: Callable[[], None]) -> None:
        """`output` is where the process writes; `wake` is called at its end."""
        assert user.confinement is not None
        self._pump = Pump(output, self._log, self._telemetry, wake, self._voice.redactor)
        self._pump.start()
        self._meter = Meter(user.pid, user.confinement, self._telemetry, gpus)

    def tick(self) -> None:
        """Call it often while the job runs; it keeps its own intervals."""
        if self._meter is not None:
            self._meter.tick()
        if time.monotonic() - self._told_at >= TELL_SECONDS:
            self._told_at = time.monotonic()
            self._tell()

    def finish(self) -> None:
        """Everything that belongs to the job is gone: the pipe ends, unless a stranger holds it."""
        if self._pump is not None:
            self._pump.join(DRAIN_SECONDS)
            self._pump.stop()
            self._pump.join(DRAIN_SECONDS)
        self._log.finish()
        self._tell(last=True)

    def _tell(self, last: bool = False) -> None:
        while self._report.read() and last:
            pass
        points = self._telemetry.take_points(last)
        while points is not None:
            self._voice.send(MessageKind.POINTS, {"series": points})
            points = self._telemetry.take_points(last)
        progress = self._telemetry.take_progress()
        if progress is not None:
            self._voice.send(MessageKind.PROGRESS, progress)
