"""Collecting what a job left when it ended: its result, its output files, and a word on what is not kept."""

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
    voice: Reporter

    def report(self, staged: FolderBaseline | None) -> None:
        """The result, and what the job wrote where it is not kept; `staged` is its folder as it was."""
        self._tell_result()
        self._note(staged.note() if staged is not None else None)
        self._note(empty_folders_note(self.folder.outputs))

    def store(self, channel: Channel) -> tuple[bool, str]:
        """Store the outputs, however long it takes; whether nothing was left out, and a text. Raises Gone."""
        redactor = self.voice.redactor
        hide = redactor.text if redactor is not None else str
        return OutputStorer(self.folder.outputs, channel, self._stored, self.voice.note, time.sleep, hide).store()

    def _tell_result(self) -> None:
        """Of several ranks only the first has a result."""
        if self.rank != 0:
            return
        try:
            found = read_result(self.folder.result)
        except BadResult as error:
            self._note(f"the result was left out: {error}")
            return
        if found is not None:
            self.voice.send(MessageKind.RESULT, {"kind": found.kind, "value": found.value})

    def _stored(self, stored: StoredFile) -> None:
        self.voice.send(MessageKind.ARTIFACT, {"path": stored.path, "size": stored.size, "sha256": stored.sha256})

    def _note(self, text: str | None) -> None:
        if text is not None:
            self.voice.note(text)


def read_result(path: Path) -> Result | None:
    """The result; None when the job left none. Raises BadResult for what is none."""
    try:
        # Without waiting: a job may have left a pipe there.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise BadResult("it is no regular file")
            return decode_result(file.read(MAX_BYTES + 1))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadResult(error.strerror or "it cannot be read") from error
