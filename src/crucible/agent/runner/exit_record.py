"""The record of how a job ended, written before it is reported.

If the runner then dies, its successor reports the same exit, and reports it once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from crucible.agent.files import read_json, write_json
from crucible.wire.documents.messages import Cause

log = logging.getLogger(__name__)

LOST: Mapping[str, object] = {
    "code": None,
    "signal": None,
    "cause": Cause.RUNNER_LOST.value,
    "text": "the runner died; the remaining processes of the job were killed",
    "cpu_seconds": None,
    "peak_memory": None,
    "seconds": None,
}
"""The exit of an attempt whose runner died before it saw one."""


@dataclass(frozen=True)
class ExitData:
    """`data` is the content of the EXITED message, which follows the message of number `after`."""

    after: int
    data: Mapping[str, object]


class ExitRecord:
    """The file `exited` in an attempt's folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: Mapping[str, object] | None = None

    def write(self, exited: ExitData) -> None:
        """Write the record. A disk error is only logged: this runner continues, though a successor would know less."""
        self._written = exited.data
        try:
            write_json(self._path, {"after": exited.after, "data": dict(exited.data)}, durable=True)
        except OSError as error:
            log.error("cannot record how the job ended: %s", error)

    def read(self) -> ExitData | None:
        """Return what an earlier runner wrote, or None."""
        doc = read_json(self._path)
        if doc is None:
            return None
        data = doc.get("data")
        return ExitData(int(str(doc["after"])), data if isinstance(data, dict) else LOST)

    def exit_data(self) -> Mapping[str, object]:
        """Return how the job ended, as written by this runner or an earlier one."""
        if self._written is not None:
            return self._written
        before = self.read()
        return LOST if before is None else before.data
