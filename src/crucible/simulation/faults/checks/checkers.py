"""The checkers: each compares what the control plane says with the ground truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from crucible.simulation.faults.checks.billing import BillingCheck
from crucible.simulation.faults.checks.event_order import EventOrderCheck, InvariantBroken
from crucible.simulation.faults.checks.gangs import GangCheck
from crucible.simulation.faults.checks.notifications import NotificationCheck
from crucible.simulation.faults.checks.placement import PlacementCheck
from crucible.simulation.faults.checks.provider_queue import ProviderQueueCheck
from crucible.simulation.faults.checks.secrets import SecretsCheck
from crucible.simulation.faults.checks.stored_objects import StoredObjectsCheck
from crucible.simulation.faults.ground_truth import TERMINAL, GroundTruth
from crucible.simulation.faults.world.cloud import Cloud, Instance
from crucible.simulation.faults.world.ports import WallClock, WatchedDb
from crucible.simulation.faults.world.store import MemoryStore

BOUND_SECONDS = 900.0
"""Without faults, anything that has to end does so within this time."""
LIMIT_SECONDS = 120.0
"""How far beyond its time limit a program may run, because of a slow clock or a dead runner."""
LAUNCH_SECONDS = 150.0
"""A launch that was in flight when its machine was given up takes effect within this time, or never."""


_OF_ENDED_JOBS = f"""
SELECT s.machine FROM slots s JOIN attempts a ON a.id = s.attempt JOIN jobs j ON j.id = a.job
WHERE j.state IN {TERMINAL} AND j.ended_at < ?
"""  # noqa: S608
_COMPLETED = """
SELECT s.attempt, s.rank FROM attempts a JOIN slots s ON s.attempt = a.id WHERE a.job = ? AND a.reason = 'completed'
"""
_UNENDED_CANCELS = f"""
SELECT j.id, j.state FROM jobs j JOIN events e ON e.job = j.id AND e.type = 'cancel_requested'
WHERE j.desired = 'cancel' AND j.state NOT IN {TERMINAL} GROUP BY j.id HAVING max(e.at) < ?
"""  # noqa: S608


@dataclass
class Checkers:
    """All checks of a run. They raise InvariantBroken. `now` is virtual time, `clock` is the control plane's clock."""

    db: WatchedDb
    truth: GroundTruth
    cloud: Cloud
    store: MemoryStore
    now: Callable[[], float]
    clock: WallClock
    secrets: SecretsCheck
    notifications: NotificationCheck
    queue: ProviderQueueCheck | None = None
    """None in a world without a cluster."""
    gangs: GangCheck | None = None
    """None in a world without jobs on several machines."""
    _releasing: dict[object, float] = field(default_factory=dict)
    _last_commit: object = None
    _last_state: object = None

    def __post_init__(self) -> None:
        self.cloud.on_create = self._check_intent
        self._objects = StoredObjectsCheck(self.db, self.truth, self.store)
        self._billing = BillingCheck(self.db, self.cloud, self.clock)
        self._placement = PlacementCheck(self.db, self.cloud, self.clock)

    def check_commit(self) -> None:
        """Check, after every commit, running programs, placements, completed attempts and live instances."""
        waiting = 0 if self.queue is None else len(self.queue.cluster.submissions)
        state = (self.db.changes, len(self.truth.began), len(self.cloud.instances), waiting)
        if state == self._last_commit:
            return
        self._last_commit = state
        self._check_programs()
        self._placement.check()
        self._objects.commit()
        self._gone()
        if self.queue is not None:
            self.queue.check()
        if self.gangs is not None:
            self.gangs.check()

    def _gone(self) -> None:
        """Raise InvariantBroken if an instance lives whose machine is gone by the books.

        A cloud that makes two instances for one token may leave one more alive than the books know: there only
        machines count that the books say were never made. What was believed too early because the clock was set,
        and every such second instance, must be gone at the end of the run.
        """
        for found in self.cloud.living():
            gone = self.db.query("SELECT native_id FROM machines WHERE id = ? AND state = 'gone'", found.machine)
            for (native_id,) in gone:
                unexpected = self.cloud.honours_tokens or native_id is None
                if unexpected and not self._was_set_since(found):
                    raise InvariantBroken(f"{found.machine} is gone by the books, and {found.id} lives")

    def _was_set_since(self, found: Instance) -> bool:
        return self.clock.stepped_at > found.created_at - LAUNCH_SECONDS

    def _check_programs(self) -> None:
        for running in self.truth.live:
            rows = self.db.query(
                "SELECT a.state, j.state FROM attempts a JOIN jobs j ON j.id = a.job WHERE a.id = ?", running.attempt
            )
            if not rows:
                raise InvariantBroken(f"{running.attempt} runs and has no row")
            attempt, job = rows[0]
            if attempt == "ended":
                raise InvariantBroken(
                    f"{running.attempt} has ended by the books, and its program runs on {running.machine}"
                )
            if job in TERMINAL:
                raise InvariantBroken(f"{running.job} is {job}, and its program runs on {running.machine}")

    def _check_intent(self, machine: str, ends_at: float | None) -> None:
        """Check, before an instance is created, that its committed row still wants it, and gives it the same end.

        Reports to the ground truth instead of raising, because its caller is the cloud.
        """
        rows = self.db.query("SELECT ends_at FROM machines WHERE id = ?", machine)
        if not rows or self.db.busy:
            return self.truth.report(f"{machine} is made before its intent is committed")
        if ends_at is None or ends_at != rows[0][0]:
            return self.truth.report(f"{machine} is made to end at {ends_at}, and its row says {rows[0][0]}")
        since = self._releasing.get(machine)
        if since is not None and self.now() > max(since, self.clock.stepped_at) + LAUNCH_SECONDS:
            self.truth.report(f"{machine} is made {self.now() - since:.0f} s after it was given up")

    def check(self, calm_since: float | None) -> None:
        """Check, every CHECK_SECONDS, all that must hold at any time. `calm_since`: None during the chaos phase."""
        state = (self.db.changes, self.truth.counts, len(self.store.objects))
        if state != self._last_state:
            self._last_state = state
            self._compare()
        self._check_limits()
        if calm_since is not None:
            self._check_bounds(calm_since)

    def _check_limits(self) -> None:
        """Check time limits of programs on rented machines; on the laptop time may stand still."""
        rented = {found.id for found in self.cloud.living()}
        for running in self.truth.live:
            if running.due is not None and running.machine in rented and self.now() > running.due + LIMIT_SECONDS:
                raise InvariantBroken(
                    f"the program of {running.attempt} runs {self.now() - running.due:.0f} s beyond its limit"
                )

    def _compare(self) -> None:
        self._check_submissions()
        self._check_cancels()
        self._check_events()
        self._check_checkpoints()
        self._objects.check()
        self._billing.check()
        self.secrets.check()
        self.notifications.check()
        self._note_releases()

    def _check_submissions(self) -> None:
        stored = {row[0] for row in self.db.query("SELECT id FROM jobs")}
        lost = [job for job in self.truth.submitted.values() if job not in stored]
        if lost:
            raise InvariantBroken(f"{lost[0]} was acknowledged and does not exist")
        twice = self.db.query("SELECT json_extract(spec, '$.name') FROM jobs GROUP BY 1 HAVING count(*) > 1")
        if twice:
            raise InvariantBroken(f"{twice[0][0]} was submitted under one key and exists twice")

    def _check_cancels(self) -> None:
        """Check that jobs whose cancel was acknowledged are still to be cancelled, or have ended."""
        wanted = self.db.query(f"SELECT id, state FROM jobs WHERE desired != 'cancel' AND state NOT IN {TERMINAL}")  # noqa: S608
        for job, state in wanted:
            if job in self.truth.cancelled:
                raise InvariantBroken(f"the cancel of {job} was acknowledged, and it is {state} as if it never was")

    def _check_events(self) -> None:
        rows = self.db.query("SELECT job, count(*), max(n), min(n) FROM events GROUP BY job")
        counts = {job: count for job, count in self.db.query("SELECT id, events FROM jobs")}  # noqa: C416
        for job, count, last, first in rows:
            if (first, last, counts[job]) != (1, count, count):
                raise InvariantBroken(
                    f"the events of {job} have a gap: {count} from {first} to {last}, {counts[job]} counted"
                )

    def _check_checkpoints(self) -> None:
        rows = set(self.db.query("SELECT attempt, sha256 FROM checkpoints"))
        for key, saved in self.truth.saved.items():
            if key not in rows:
                raise InvariantBroken(
                    f"a checkpoint of {saved.job} at step {saved.step} was acknowledged and has no row"
                )

    def _check_bounds(self, calm_since: float) -> None:
        self._check_released(calm_since)
        if self.now() - calm_since < BOUND_SECONDS:
            return
        if self.gangs is not None:
            self.gangs.check_late()
        slow = self.db.query(_UNENDED_CANCELS, self.clock.now() - BOUND_SECONDS)
        if slow:
            raise InvariantBroken(f"{slow[0][0]} was cancelled {BOUND_SECONDS:.0f} s ago and is still {slow[0][1]}")
        over = {row[0] for row in self.db.query(_OF_ENDED_JOBS, self.clock.now() - BOUND_SECONDS)}
        for found in self.cloud.living():
            if found.machine in over:
                raise InvariantBroken(f"{found.id} lives {BOUND_SECONDS:.0f} s after the end of its job")

    def _note_releases(self) -> None:
        rows = self.db.query("SELECT id FROM machines WHERE state IN ('releasing', 'gone')")
        self._releasing = {row[0]: self._releasing.get(row[0], self.now()) for row in rows}

    def _check_released(self, calm_since: float) -> None:
        """Check that machines do not stay in `releasing`."""
        for (machine,) in self.db.query("SELECT id FROM machines WHERE state = 'releasing'"):
            since = max(self._releasing[machine], calm_since)
            if self.now() - since > BOUND_SECONDS:
                raise InvariantBroken(f"{machine} is being released for {self.now() - since:.0f} s")

    # At the end

    def unfinished(self) -> str:
        """Return a sentence that names something unfinished, or "" if everything has ended."""
        jobs = self.db.query(f"SELECT id, state, waiting FROM jobs WHERE state NOT IN {TERMINAL}")  # noqa: S608
        if jobs:
            return f"{jobs[0][0]} is {jobs[0][1]} {jobs[0][2]}"
        effects = self.db.query("SELECT kind, machine, error FROM effects WHERE NOT done")
        if effects:
            return f"an effect is open: {effects[0][0]} {effects[0][1]} {effects[0][2]}"
        machines = self.db.query("SELECT id, state FROM machines WHERE owner NOT LIKE 'pool:%' AND state != 'gone'")
        if machines:
            return f"{machines[0][0]} is {machines[0][1]}"
        living = [found.id for found in self.cloud.living()]
        living += [] if self.queue is None else [found.id for found in self.queue.cluster.living()]
        if living:
            return f"{living[0]} lives"
        return self._billing.open() or self._objects.unpruned() or self.notifications.missing()

    def check_end(self) -> None:
        """Check, when everything has ended, the results of jobs, all bills, all objects and all events."""
        self._check_outcomes()
        self._billing.finish()
        self._objects.finish()
        self.secrets.check()
        for (job,) in self.db.query("SELECT id FROM jobs"):
            EventOrderCheck(self.db, self.truth).check(str(job))

    def check_pruned(self) -> None:
        """Check, after everything was pruned, that every object in the store has a row."""
        left = self._objects.unknown_objects()
        if left:
            raise InvariantBroken(f"{left[0]} is in the store, and nobody knows it")

    def _check_outcomes(self) -> None:
        for job, state, reason in self.db.query("SELECT id, state, reason FROM jobs"):
            if state == "completed" and not self._has_completed(job):
                raise InvariantBroken(f"{job} is completed, and its program never was")
            if reason == "exit_code" and job not in self.truth.failed:
                raise InvariantBroken(f"{job} failed by its exit code, and its program never exited with one")
        if self.truth.live:
            raise InvariantBroken(f"the program of {self.truth.live[0].attempt} still runs")

    def _has_completed(self, job: object) -> bool:
        """Return whether the programs of all ranks of its completed attempt completed."""
        ranks = self.db.query(_COMPLETED, job)
        return bool(ranks) and self.truth.completed.issuperset(ranks)
