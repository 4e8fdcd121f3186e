"""Check the machines that wait in the cluster's queue against their rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from crucible.simulation.faults.checks.event_order import InvariantBroken
from crucible.simulation.faults.ground_truth import GroundTruth
from crucible.simulation.faults.world.cluster import Cluster, Submission
from crucible.simulation.faults.world.ports import WallClock, WatchedDb

LAUNCH_SECONDS = 150.0
"""A call that was in flight when its machine was given up takes effect within this time, or never."""
FRESH_SECONDS = 600.0
"""A host that makes its first contact within this time of its start may claim its machine."""

_ROW = "SELECT state, native_id, host_due, ends_at, started_at FROM machines WHERE id = ?"
_ELSEWHERE = """
SELECT other.job, other.id FROM slots s JOIN attempts a ON a.id = s.attempt
JOIN attempts other ON other.job = a.job AND other.id != a.id AND other.state != 'ended' WHERE s.machine = ?
"""
_COSTS = "SELECT 1 FROM price_segments WHERE machine = ?"
_IN_QUEUE = """
SELECT count(DISTINCT owner) FROM machines
WHERE backend = 'cluster' AND state IN ('intended', 'creating', 'queued') AND started_at IS NULL
"""
_RELEASED = "SELECT id, claimed_by FROM machines WHERE state IN ('releasing', 'gone')"


@dataclass
class ProviderQueueCheck:
    """`limit`: how many of our machines may wait in the cluster's queue."""

    db: WatchedDb
    truth: GroundTruth
    cluster: Cluster
    clock: WallClock
    limit: int
    _claims: dict[object, object] = field(default_factory=dict)
    _released_at: dict[object, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cluster.on_submit = self._check_intent
        self.cluster.on_refused = self._check_refusal

    def check(self) -> None:
        """Raise InvariantBroken, after any commit, if what waits is not as its row says."""
        for found in self.cluster.living():
            rows = self.db.query(_ROW, found.machine)
            if rows and rows[0][0] == "gone" and not self._was_set_since(found):
                raise InvariantBroken(f"{found.machine} is gone by the books, and {found.id} is there")
            if rows and found.waits:
                self._check_waiting(found, rows[0])
        ((waiting,),) = self.db.query(_IN_QUEUE)
        if int(str(waiting)) > self.limit:
            raise InvariantBroken(f"{waiting} machines wait for the cluster, {self.limit} may")
        for machine, claimed_by in self.db.query(_RELEASED):
            if self._claims.setdefault(machine, claimed_by) != claimed_by:
                raise InvariantBroken(f"{machine} was claimed by {claimed_by} after it was released")
            self._released_at.setdefault(machine, self.cluster.now())

    def _check_waiting(self, found: Submission, row: tuple[object, ...]) -> None:
        _, native_id, *clocks = row
        if native_id == found.id and any(clock is not None for clock in clocks):
            raise InvariantBroken(f"the clocks of {found.machine} run while it waits in the cluster's queue")
        if self.db.query(_COSTS, found.machine):
            raise InvariantBroken(f"{found.machine} costs money while it waits in the cluster's queue")
        for job, attempt in self.db.query(_ELSEWHERE, found.machine):
            if not self._was_set_since(found):
                raise InvariantBroken(f"{job} was placed again as {attempt} while {found.id} waits for it")

    def _was_set_since(self, found: Submission) -> bool:
        return self.clock.stepped_at > found.submitted_at - LAUNCH_SECONDS

    def _check_intent(self, machine: str) -> None:
        """Check, before a machine joins the queue, that its committed row wants it, or did a moment ago."""
        rows = self.db.query(_ROW, machine)
        if not rows or self.db.busy:
            return self.truth.report(f"{machine} is queued before its intent is committed")
        since = self._released_at.get(machine)
        if since is not None and self.cluster.now() > max(since, self.clock.stepped_at) + LAUNCH_SECONDS:
            self.truth.report(f"{machine} is queued {self.cluster.now() - since:.0f} s after it was given up")

    def _check_refusal(self, found: Submission) -> None:
        """Check that a host which has just started is refused only if its machine is not wanted any more."""
        ((state, *_),) = self.db.query(_ROW, found.machine)
        fresh = found.started_at is not None and self.cluster.now() - found.started_at < FRESH_SECONDS
        if fresh and state not in ("releasing", "gone") and not self._was_set_since(found):
            self.truth.report(f"the host of {found.id} was refused, and {found.machine} is {state}")
