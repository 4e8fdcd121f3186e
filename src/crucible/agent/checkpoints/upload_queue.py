"""Decide which checkpoint is uploaded next. Pure.

Jobs resume from the checkpoint that was announced last, so checkpoints are announced in the order in which they became
whole, and older ones are dropped. A short queue is uploaded completely. Of a long one only the newest is, and those
with the lowest and highest metric: whether low or high is better is not known here. In a hurry it is the newest alone.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from crucible.agent.checkpoints.listing import CheckpointEntry
from crucible.agent.checkpoints.notes import SaveNote
from crucible.agent.checkpoints.watch import WholeEntry, WholeReason
from crucible.wire.documents.checkpoint_names import step_in_name

SHORT_BYTES = 64 * 1024**2
SHORT_COUNT = 10


class Mode(enum.Enum):
    RUNNING = "running"
    ENDED = "ended"
    HURRY = "hurry"


@dataclass(frozen=True)
class Candidate:
    """A complete checkpoint that is not stored yet. `order` rises as checkpoints become complete."""

    order: int
    entry: CheckpointEntry
    how: WholeReason
    note: SaveNote | None = None

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def step(self) -> int | None:
        noted = self.note.step if self.note is not None else None
        return noted if noted is not None else step_in_name(self.name)

    @property
    def metric(self) -> float | None:
        return self.note.metric if self.note is not None else None


@dataclass(frozen=True)
class UploadQueue:
    """Candidates in order, at most one per name. `metrics` are the lowest and highest that were stored."""

    candidates: tuple[Candidate, ...] = ()
    offered: int = 0
    metrics: tuple[float, float] = (math.inf, -math.inf)

    def offer(self, whole: WholeEntry) -> UploadQueue:
        """Add an entry. It replaces one of the same name, whose content has been overwritten."""
        added = Candidate(self.offered + 1, whole.entry, whole.how, whole.note)
        others = tuple(c for c in self.candidates if c.name != added.name)
        return replace(self, candidates=(*others, added), offered=added.order)

    def without(self, candidate: Candidate) -> UploadQueue:
        return replace(self, candidates=tuple(c for c in self.candidates if c.order != candidate.order))

    def stored(self, candidate: Candidate) -> UploadQueue:
        """Remove an announced checkpoint and all older ones."""
        left = tuple(c for c in self.candidates if c.order > candidate.order)
        if candidate.metric is None:
            return replace(self, candidates=left)
        low, high = self.metrics
        return replace(self, candidates=left, metrics=(min(low, candidate.metric), max(high, candidate.metric)))

    def next(self, mode: Mode) -> Candidate | None:
        """Return the checkpoint to upload now, or None."""
        if mode is Mode.RUNNING and self._is_long:
            return min(self._worthwhile(), key=_order)
        choose = max if mode is Mode.HURRY else min
        return choose(self.candidates, key=_order, default=None)

    @property
    def _is_long(self) -> bool:
        size = sum(c.entry.size for c in self.candidates)
        several = len(self.candidates) > 1
        return several and (size > SHORT_BYTES or len(self.candidates) > SHORT_COUNT)

    def _worthwhile(self) -> Iterable[Candidate]:
        yield max(self.candidates, key=_order)
        low, high = self.metrics
        scored = [(c.metric, c.order, c) for c in self.candidates if c.metric is not None]
        for metric, _, candidate in (min(scored), max(scored)) if scored else ():
            if not low <= metric <= high:
                yield candidate


def _order(candidate: Candidate) -> int:
    return candidate.order
