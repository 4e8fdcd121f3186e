"""Notes in the report file, which `crucible.checkpoint.save` writes once a checkpoint is complete and on disk."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from crucible.agent.checkpoints.listing import CheckpointEntry
from crucible.wire.documents.checkpoint_names import MAX_STEP


@dataclass(frozen=True)
class SaveNote:
    """A note. `inode` and `mtime_ns` identify the content that was saved under the name, if the note has them."""

    name: str
    step: int | None = None
    metric: float | None = None
    inode: int | None = None
    mtime_ns: int | None = None

    def means(self, entry: CheckpointEntry) -> bool:
        """Return whether the note is about this content, and not about later content of the same name."""
        if entry.name != self.name:
            return False
        return self.inode is None or (self.inode, self.mtime_ns) == (entry.inode, entry.mtime_ns)


def read_note(line: bytes) -> SaveNote | None:
    """Return the note in a line of the report file; None for any other line."""
    if b'"checkpoint"' not in line:
        return None
    try:
        doc = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(doc, dict) or "crucible" not in doc or not isinstance(doc.get("checkpoint"), str):
        return None
    step = _whole(doc.get("step"))
    return SaveNote(
        name=doc["checkpoint"],
        step=step if step is not None and 0 <= step < MAX_STEP else None,
        metric=_finite(doc.get("metric")),
        inode=_whole(doc.get("inode")),
        mtime_ns=_whole(doc.get("mtime_ns")),
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
