"""What was announced of an attempt's checkpoints: kept on disk for a runner that comes after this one."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

from crucible.agent.checkpoints.upload_queue import Candidate
from crucible.agent.checkpoints.watch import WholeEntry
from crucible.agent.files import read_json, write_json

log = logging.getLogger(__name__)


@dataclass
class UploadRecord:
    """`hashes` are by name, the last announced of each.

    `before_ns` is when the newest checkpoint that an earlier runner announced was written: an older one that
    it passed over must not be announced after it.
    """

    path: Path
    hashes: dict[str, str] = field(default_factory=dict)
    before_ns: int = 0

    @classmethod
    def read(cls, path: Path) -> UploadRecord:
        doc = read_json(path) or {}
        hashes, newest = doc.get("hashes"), doc.get("newest_ns")
        known = {str(name): str(sha) for name, sha in hashes.items()} if isinstance(hashes, dict) else {}
        return cls(path, known, newest if isinstance(newest, int) else 0)

    def overtakes(self, whole: WholeEntry) -> bool:
        return whole.entry.newest_ns < self.before_ns

    def add(self, candidate: Candidate, sha256: str) -> None:
        """If it cannot be written, a later runner announces it again, which is harmless."""
        self.hashes[candidate.name] = sha256
        try:
            write_json(self.path, {"hashes": dict(self.hashes), "newest_ns": candidate.entry.newest_ns})
        except OSError as error:
            log.warning("cannot write down which checkpoints are stored: %s", error)
