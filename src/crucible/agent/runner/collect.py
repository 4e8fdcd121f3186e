"""Collect a job's result and output files, and note files that are not kept."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from crucible.agent.link.channel import Channel
from crucible.agent.link.reporter import Reporter
from crucible.agent.runner.attempt_folder import AttemptFolder
from crucible.agent.runner.leftovers import FolderBaseline, empty_folders_note
from crucible.agent.runner.output_files import OutputStorer, StoredFile
from crucible.wire.documents.messages import MessageKind
from crucible.wire.documents.results import MAX_BYTES, BadResult, Result, decode_result


@dataclass(frozen=True)
class OutputCollector:
    folder: AttemptFolder
    rank: int
    reporter: Reporter

    def report(self, baseline: FolderBaseline | None) -> None:
        """Report the result, and note files that are not kept.

        `baseline` is the working directory before the job ran; None if the job runs in place.
        """
        self._report_result()
        self._note(baseline.note() if baseline is not None else None)
        self._note(empty_folders_note(self.folder.outputs))

    def store(self, channel: Channel) -> tuple[bool, str]:
        """Store the outputs, retrying forever. Return whether all were stored, and a text about those that were not.

        Raises Gone.
        """
        redactor = self.reporter.redactor
        hide = redactor.text if redactor is not None else str
        return OutputStorer(self.folder.outputs, channel, self._stored, self.reporter.note, time.sleep, hide).store()

    def _report_result(self) -> None:
        """Send the result; only rank 0 has one."""
        if self.rank != 0:
            return
        try:
            result = read_result(self.folder.result)
        except BadResult as error:
            self._note(f"the result was not kept: {error}")
            return
        if result is not None:
            self.reporter.send(MessageKind.RESULT, {"kind": result.kind, "value": result.value})

    def _stored(self, stored: StoredFile) -> None:
        self.reporter.send(MessageKind.ARTIFACT, {"path": stored.path, "size": stored.size, "sha256": stored.sha256})

    def _note(self, text: str | None) -> None:
        if text is not None:
            self.reporter.note(text)


def read_result(path: Path) -> Result | None:
    """Return the job's result, or None. Raises BadResult if the file is invalid."""
    try:
        # Non-blocking, because opening a named pipe that the job left there would hang.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise BadResult("it is not a regular file")
            return decode_result(file.read(MAX_BYTES + 1))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadResult(error.strerror or "it cannot be read") from error
