"""How a job ended, written down before it is said: whoever finishes for a runner that died says the same, and once."""

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
    "text": "the runner died; what was left of the job was ended",
    "cpu_seconds": None,
    "peak_memory": None,
    "seconds": None,
}
"""How an attempt ended whose runner did not live to see it."""


@dataclass(frozen=True)
class ExitData:
    """`data` is what the EXITED message tells; it comes after the message of number `after`."""

    after: int
    data: Mapping[str, object]


class ExitRecord:
    """The file `exited` of an attempt."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: Mapping[str, object] | None = None

    def write(self, exited: ExitData) -> None:
        """A disk that does not take it costs a successor its certainty, not this runner its life."""
        self._written = exited.data
        try:
            write_json(self._path, {"after": exited.after, "data": dict(exited.data)}, durable=True)
        except OSError as error:
            log.error("cannot write down how the job ended: %s", error)

    def read(self) -> ExitData | None:
        """As a runner before this one wrote it; None when none did."""
        doc = read_json(self._path)
        if doc is None:
            return None
        data = doc.get("data")
        return ExitData(int(str(doc["after"])), data if isinstance(data, dict) else LOST)

    def exit_data(self) -> Mapping[str, object]:
        """As it was said; by a runner before this one, if need be."""
        if self._written is not None:
            return self._written
        before = self.read()
        return LOST if before is None else before.data
