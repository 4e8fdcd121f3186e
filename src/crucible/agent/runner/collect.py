"""Collect a job's result and output files."""

from __future__ import annotations

import itertools
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from crucible.agent.link.channel import Channel
from crucible.agent.link.reporter import Reporter
from crucible.agent.runner.attempt_folder import AttemptFolder
from crucible.agent.runner.output_files import MAX_FILES, MAX_SEARCHED, OutputStorer, StoredFile, files_below
from crucible.agent.runner.work_files import MAX_ENTRIES, ChangedFiles, StagedFiles
from crucible.wire.documents.desired import Assignment
from crucible.wire.documents.messages import MessageKind
from crucible.wire.documents.results import MAX_BYTES, BadResult, Result, decode_result


@dataclass(frozen=True)
class OutputCollector:
    folder: AttemptFolder
    assignment: Assignment
    reporter: Reporter

    def store(self, channel: Channel) -> tuple[bool, str]:
        """Store the files of the output folder, then what the job made or changed in its working directory.

        Return whether all were stored, and a text about those that were not. Raises Gone.
        """
        redactor = self.reporter.redactor
        has_secret = redactor.has_secret if redactor is not None else lambda data: False
        storer = OutputStorer(channel, self._stored, self.reporter.note, time.sleep, has_secret)
        staged = StagedFiles.read(self.folder.staged)
        changed = staged.changed(MAX_FILES, self.assignment.outputs) if staged is not None else ChangedFiles()
        if not changed.is_whole:
            self.reporter.note(f"only {MAX_ENTRIES} entries of the working directory were searched for outputs")
        files = changed.files
        if redactor is None and self.assignment.secrets:
            files = tuple(file for file in files if file.path.stat().st_size > MAX_SEARCHED)
            self.reporter.note(
                f"small files of the working directory were not stored: {len(changed.files) - len(files)}, because the "
                "job's secrets, which they are searched for, could not be fetched again"
            )
        return storer.store(itertools.chain(files_below(self.folder.outputs), files), changed.others)

    def report_result(self) -> None:
        """Send the result; only rank 0 has one."""
        if self.assignment.rank != 0:
            return
        try:
            result = read_result(self.folder.result)
        except BadResult as error:
            self.reporter.note(f"the result was not kept: {error}")
            return
        if result is not None:
            self.reporter.send(MessageKind.RESULT, {"kind": result.kind, "value": result.value})

    def _stored(self, stored: StoredFile) -> None:
        self.reporter.send(MessageKind.ARTIFACT, {"path": stored.path, "size": stored.size, "sha256": stored.sha256})


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
