"""The shelf: what the store holds, compared with what the books say it holds."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from crucible.control.objects.gc_marks import ARRIVING
from crucible.simulation.faults.checks.event_order import InvariantBroken
from crucible.simulation.faults.ground_truth import GroundTruth
from crucible.simulation.faults.world.ports import WatchedDb
from crucible.simulation.faults.world.store import MemoryStore
from crucible.storage.layout import artifact_key, bundle_key, checkpoint_key, log_segment_key

_SEGMENTS = """
SELECT a.job, s.attempt, s.n, s.start, s."end", s.sha256 FROM log_segments s JOIN attempts a ON a.id = s.attempt
WHERE s.rank = 0 ORDER BY s.attempt, s.n
"""
_CHECKPOINTS = "SELECT job, sha256 FROM checkpoints WHERE pruned_at IS NULL"
_OUTPUTS = "SELECT job, attempt, path, sha256 FROM artifacts"
_BUNDLES = "SELECT sha256 FROM bundles"
_WITHOUT_CODE = """
SELECT id FROM (SELECT id, json_extract(spec, '$.bundle') AS bundle FROM jobs WHERE pruned_at IS NULL)
WHERE bundle IS NOT NULL AND bundle NOT IN (SELECT sha256 FROM bundles)
"""
_FINISHED = """
SELECT a.reason, a.detail, m.state, EXISTS (SELECT 1 FROM artifacts o WHERE o.attempt = a.id)
FROM attempts a JOIN slots s ON s.attempt = a.id JOIN machines m ON m.id = s.machine
WHERE a.id = ? AND a.state = 'ended'
"""
_COUNTS = """
SELECT (SELECT count(*) FROM log_segments), (SELECT count(*) FROM artifacts), (SELECT count(*) FROM bundles),
(SELECT count(*) FROM jobs)
"""


@dataclass
class StoredObjectsCheck:
    """Each check raises Broken. What was found whole is hashed again only at the end."""

    db: WatchedDb
    truth: GroundTruth
    store: MemoryStore
    _whole: set[str] = field(default_factory=set)
    _told: int = 0
    _counted: object = None

    def check(self) -> None:
        """At any time: what the books list is there, whole; what was acknowledged is in the books."""
        self._checkpoints()
        counted = (self.db.query(_COUNTS), len(self.store.objects), len(self.truth.written), len(self.truth.outputs))
        if counted != self._counted:
            self._output()
            self._files()
            self._code()
            self._counted = counted

    def commit(self) -> None:
        """After every commit: a try completes when its outputs are in, or its machine is lost with them.

        Of one that was given up because nothing more is heard of its machine, the row has a detail.
        """
        for attempt in self.truth.finishing[:]:
            for reason, detail, machine, there in self.db.query(_FINISHED, attempt)[:1]:
                self.truth.finishing.remove(attempt)
                if reason == "completed" and not (there or detail or machine == "gone"):
                    raise InvariantBroken(f"{attempt} has completed by the books before its outputs were in")

    def finish(self) -> None:
        self._whole.clear()
        self._counted = None
        self.check()

    def unpruned(self) -> str:
        """What is there though its row says that it goes, in words; empty when nothing is."""
        kept = {checkpoint_key(str(job), str(sha)) for job, sha in self.db.query(_CHECKPOINTS)}
        gone = self.db.query("SELECT job, sha256 FROM checkpoints WHERE pruned_at IS NOT NULL")
        keys = {checkpoint_key(str(job), str(sha)) for job, sha in gone} - kept
        there = sorted(key for key in keys & self.store.objects.keys() if not self._arriving(key))
        return f"{there[0]} is pruned and still there" if there else ""

    def unknown_objects(self) -> list[str]:
        """Objects that no row knows."""
        known = {checkpoint_key(str(job), str(sha)) for job, sha in self.db.query(_CHECKPOINTS)}
        known |= {log_segment_key(str(row[0]), str(row[1]), 0, int(str(row[2]))) for row in self.db.query(_SEGMENTS)}
        known |= {artifact_key(str(job), str(attempt), str(path)) for job, attempt, path, _ in self.db.query(_OUTPUTS)}
        known |= {bundle_key(str(sha)) for (sha,) in self.db.query(_BUNDLES)}
        return sorted(self.store.objects.keys() - known)

    def _arriving(self, key: str) -> bool:
        """Whether somebody stored it who has not said so yet, or never will."""
        mark = f"{ARRIVING}{hashlib.sha256(key.encode()).hexdigest()[:40]}"
        return bool(self.db.query("SELECT 1 FROM meta WHERE key = ?", mark))

    def _checkpoints(self) -> None:
        for job, sha256 in self.db.query(_CHECKPOINTS):
            self._there(checkpoint_key(str(job), str(sha256)), str(sha256))

    def _code(self) -> None:
        for (sha256,) in self.db.query(_BUNDLES):
            self._there(bundle_key(str(sha256)), str(sha256))
        without = self.db.query(_WITHOUT_CODE)
        if without:
            raise InvariantBroken(f"{without[0][0]} is kept, and its bundle is not in the books")

    def _files(self) -> None:
        """What programs left for their users."""
        rows = {(attempt, path): (job, sha256) for job, attempt, path, sha256 in self.db.query(_OUTPUTS)}
        for (attempt, path), (job, sha256) in rows.items():
            self._there(artifact_key(str(job), str(attempt), str(path)), str(sha256))
        for key, told in self.truth.outputs.items():
            if rows.get(key) != (told.job, told.sha256):
                raise InvariantBroken(
                    f"{told.path} of {told.attempt} was acknowledged, and the books have it otherwise"
                )

    def _output(self) -> None:
        rows = self.db.query(_SEGMENTS)
        ends: dict[object, tuple[int, int]] = {}
        for job, attempt, n, start, end, sha256 in rows:
            before, there = ends.get(attempt, (0, 0))
            if (n, start) != (before + 1, there):
                raise InvariantBroken(
                    f"the output of {attempt} has a gap: segment {n} from {start} follows {before} to {there}"
                )
            ends[attempt] = int(str(n)), int(str(end))
            self._there(log_segment_key(str(job), str(attempt), 0, int(str(n))), str(sha256))
        self._acknowledged({(row[1], row[2]): row for row in rows})

    def _acknowledged(self, rows: dict[tuple[object, object], tuple[object, ...]]) -> None:
        for told in self.truth.written[self._told :]:
            if rows.get((told.attempt, told.n)) != (
                told.job,
                told.attempt,
                told.n,
                told.start,
                told.end,
                told.sha256,
            ):
                raise InvariantBroken(
                    f"segment {told.n} of {told.attempt} was acknowledged, and the books have it otherwise"
                )
        self._told = len(self.truth.written)

    def _there(self, key: str, sha256: str) -> None:
        if key not in self.store.objects:
            raise InvariantBroken(f"{key} is in the books and not in the store")
        if key not in self._whole and hashlib.sha256(self.store.objects[key]).hexdigest() != sha256:
            raise InvariantBroken(f"{key} holds other bytes than the books say")
        self._whole.add(key)
