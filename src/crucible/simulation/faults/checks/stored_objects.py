"""Compare the objects in the store with the rows that list them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from crucible.control.objects.gc_marks import ARRIVING
from crucible.simulation.faults.checks.event_order import InvariantBroken
from crucible.simulation.faults.ground_truth import GroundTruth
from crucible.simulation.faults.world.ports import WatchedDb
from crucible.simulation.faults.world.store import MemoryStore
from crucible.storage.layout import artifact_key, bundle_key, checkpoint_key, log_segment_key, output_key

_SEGMENTS = """
SELECT a.job, s.attempt, s.rank, s.n, s.start, s."end", s.sha256, s.hashed
FROM log_segments s JOIN attempts a ON a.id = s.attempt ORDER BY s.attempt, s.rank, s.n
"""
_CHECKPOINTS = "SELECT job, sha256 FROM checkpoints WHERE pruned_at IS NULL"
_OUTPUTS = "SELECT job, attempt, path, sha256, hashed FROM artifacts"
_BUNDLES = "SELECT sha256 FROM bundles"
_WITHOUT_CODE = """
SELECT id FROM (SELECT id, json_extract(spec, '$.bundle') AS bundle FROM jobs WHERE pruned_at IS NULL)
WHERE bundle IS NOT NULL AND bundle NOT IN (SELECT sha256 FROM bundles)
"""
_FINISHED = """
SELECT a.reason, a.detail, m.state, EXISTS (SELECT 1 FROM artifacts o WHERE o.attempt = a.id AND o.rank = s.rank)
FROM attempts a JOIN slots s ON s.attempt = a.id JOIN machines m ON m.id = s.machine
WHERE a.id = ? AND s.rank = ? AND a.state = 'ended'
"""
_COUNTS = """
SELECT (SELECT count(*) FROM log_segments), (SELECT count(*) FROM artifacts), (SELECT count(*) FROM bundles),
(SELECT count(*) FROM jobs)
"""


@dataclass
class StoredObjectsCheck:
    """Checks stored objects. Each check raises InvariantBroken. An intact object is hashed again only by `finish`."""

    db: WatchedDb
    truth: GroundTruth
    store: MemoryStore
    _intact: set[str] = field(default_factory=set)
    _checked_segments: int = 0
    _last_counts: object = None

    def check(self) -> None:
        """Check that every listed object is in the store, intact, and that everything acknowledged is listed."""
        self._check_checkpoints()
        counts = (self.db.query(_COUNTS), len(self.store.objects), len(self.truth.written), len(self.truth.outputs))
        if counts != self._last_counts:
            self._check_segments()
            self._check_outputs()
            self._check_bundles()
            self._last_counts = counts

    def commit(self) -> None:
        """Check, after every commit, that attempts complete only when their outputs are stored or lost with a machine.

        The row of an attempt that was given up because its machine went silent has a detail.
        """
        for attempt, rank in self.truth.finishing[:]:
            for reason, detail, machine, stored in self.db.query(_FINISHED, attempt, rank):
                self.truth.finishing.remove((attempt, rank))
                if reason == "completed" and not (stored or detail or machine == "gone"):
                    raise InvariantBroken(f"{attempt} has completed by the books before its outputs were in")

    def finish(self) -> None:
        self._intact.clear()
        self._last_counts = None
        self.check()

    def unpruned(self) -> str:
        """Return a sentence that names a pruned object that is still in the store, or ""."""
        kept = {checkpoint_key(str(job), str(sha)) for job, sha in self.db.query(_CHECKPOINTS)}
        pruned = self.db.query("SELECT job, sha256 FROM checkpoints WHERE pruned_at IS NOT NULL")
        keys = {checkpoint_key(str(job), str(sha)) for job, sha in pruned} - kept
        left = sorted(key for key in keys & self.store.objects.keys() if not self._arriving(key))
        return f"{left[0]} is pruned and still there" if left else ""

    def unknown_objects(self) -> list[str]:
        """Return the keys of objects that no row lists."""
        known = {checkpoint_key(str(job), str(sha)) for job, sha in self.db.query(_CHECKPOINTS)}
        known |= {_segment_key(row) for row in self.db.query(_SEGMENTS)}
        known |= {_output_key(row) for row in self.db.query(_OUTPUTS)}
        known |= {bundle_key(str(sha)) for (sha,) in self.db.query(_BUNDLES)}
        return sorted(self.store.objects.keys() - known)

    def _arriving(self, key: str) -> bool:
        """Return whether the object was uploaded again, and its row is not written yet or never will be."""
        mark = f"{ARRIVING}{hashlib.sha256(key.encode()).hexdigest()[:40]}"
        return bool(self.db.query("SELECT 1 FROM meta WHERE key = ?", mark))

    def _check_checkpoints(self) -> None:
        for job, sha256 in self.db.query(_CHECKPOINTS):
            self._check_object(checkpoint_key(str(job), str(sha256)), str(sha256))

    def _check_bundles(self) -> None:
        for (sha256,) in self.db.query(_BUNDLES):
            self._check_object(bundle_key(str(sha256)), str(sha256))
        without = self.db.query(_WITHOUT_CODE)
        if without:
            raise InvariantBroken(f"{without[0][0]} is kept, and its bundle is not in the books")

    def _check_outputs(self) -> None:
        """Check the output files of programs."""
        found = self.db.query(_OUTPUTS)
        rows = {(attempt, path): (job, sha256) for job, attempt, path, sha256, _ in found}
        for row in found:
            self._check_object(_output_key(row), str(row[3]))
        for key, output in self.truth.outputs.items():
            if rows.get(key) != (output.job, output.sha256):
                raise InvariantBroken(
                    f"{output.path} of {output.attempt} was acknowledged, and the books have it otherwise"
                )

    def _check_segments(self) -> None:
        rows = self.db.query(_SEGMENTS)
        ends: dict[tuple[object, object], tuple[int, int]] = {}
        for row in rows:
            _, attempt, rank, n, start, end, sha256, _ = row
            before, there = ends.get((attempt, rank), (0, 0))
            if (n, start) != (before + 1, there):
                raise InvariantBroken(
                    f"the output of {attempt} has a gap: segment {n} from {start} follows {before} to {there}"
                )
            ends[attempt, rank] = int(str(n)), int(str(end))
            self._check_object(_segment_key(row), str(sha256))
        self._check_acknowledged({row[1:4]: row[:7] for row in rows})

    def _check_acknowledged(self, rows: dict[tuple[object, ...], tuple[object, ...]]) -> None:
        for segment in self.truth.written[self._checked_segments :]:
            if rows.get((segment.attempt, segment.rank, segment.n)) != (
                segment.job,
                segment.attempt,
                segment.rank,
                segment.n,
                segment.start,
                segment.end,
                segment.sha256,
            ):
                raise InvariantBroken(
                    f"segment {segment.n} of {segment.attempt} was acknowledged, and the books have it otherwise"
                )
        self._checked_segments = len(self.truth.written)

    def _check_object(self, key: str, sha256: str) -> None:
        if key not in self.store.objects:
            raise InvariantBroken(f"{key} is in the books and not in the store")
        if key not in self._intact and hashlib.sha256(self.store.objects[key]).hexdigest() != sha256:
            raise InvariantBroken(f"{key} holds other bytes than the books say")
        self._intact.add(key)


def _segment_key(row: tuple[object, ...]) -> str:
    job, attempt, rank, n, sha256 = (str(row[at]) for at in (0, 1, 2, 3, 6))
    return log_segment_key(job, attempt, int(rank), int(n), sha256 if row[7] else None)


def _output_key(row: tuple[object, ...]) -> str:
    job, attempt, path, sha256 = (str(value) for value in row[:4])
    return output_key(job, attempt, sha256) if row[4] else artifact_key(job, attempt, path)
