"""Findings: the checkers. Each compares what the control plane says with what is true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from crucible.simulation.faults.checks.billing import Bills
from crucible.simulation.faults.checks.event_order import Broken, Story
from crucible.simulation.faults.checks.notifications import Notices
from crucible.simulation.faults.checks.placement import Choices
from crucible.simulation.faults.checks.secrets import Safe
from crucible.simulation.faults.checks.stored_objects import Shelf
from crucible.simulation.faults.ground_truth import TERMINAL, Truth
from crucible.simulation.faults.world.cloud import Cloud, Instance
from crucible.simulation.faults.world.ports import WallClock, WatchedDb
from crucible.simulation.faults.world.store import MemoryStore

BOUND_SECONDS = 900.0
"""With nothing failing, what is to end has ended within this time."""
LIMIT_SECONDS = 120.0
"""A program on a machine whose clock is slow, or whose runner died, may run so much longer than its limit."""
LAUNCH_SECONDS = 150.0
"""A launch that was under way when its machine was given up takes effect within this time, or never."""


_OF_ENDED_JOBS = f"""
SELECT s.machine FROM slots s JOIN attempts a ON a.id = s.attempt JOIN jobs j ON j.id = a.job
WHERE j.state IN {TERMINAL} AND j.ended_at < ?
"""  # noqa: S608
_UNENDED_CANCELS = f"""
SELECT j.id, j.state FROM jobs j JOIN events e ON e.job = j.id AND e.type = 'cancel_requested'
WHERE j.desired = 'cancel' AND j.state NOT IN {TERMINAL} GROUP BY j.id HAVING max(e.at) < ?
"""  # noqa: S608


@dataclass
class Checkers:
    """Every check raises Broken. `now` is virtual time, `clock` the control plane's."""

    db: WatchedDb
    truth: Truth
    cloud: Cloud
    store: MemoryStore
    now: Callable[[], float]
    clock: WallClock
    safe: Safe
    notices: Notices
    _releasing: dict[object, float] = field(default_factory=dict)
    _committed: object = None
    _looked: object = None

    def __post_init__(self) -> None:
        self.cloud.making = self._intent
        self._shelf = Shelf(self.db, self.truth, self.store)
        self._bills = Bills(self.db, self.cloud, self.clock)
        self._choices = Choices(self.db, self.cloud, self.clock)

    def commit(self) -> None:
        """After every commit: nothing runs that is over by the books, and nothing is tried twice at once."""
        state = (self.db.changes, len(self.truth.began), len(self.cloud.instances))
        if state == self._committed:
            return
        self._committed = state
        self._programs()
        self._choices.check()
        self._shelf.commit()
        if self.cloud.honours_tokens:
            self._gone()

    def _gone(self) -> None:
        """A cloud that makes two for one token has more than the books know: that is for the end to show.

        So is what was believed too early because the clock was set.
        """
        for found in self.cloud.living():
            gone = self.db.look("SELECT 1 FROM machines WHERE id = ? AND state = 'gone'", found.machine)
            if gone and not self._was_set_since(found):
                raise Broken(f"{found.machine} is gone by the books, and {found.id} lives")

    def _was_set_since(self, found: Instance) -> bool:
        return self.clock.stepped_at > found.created_at - LAUNCH_SECONDS

    def _programs(self) -> None:
        for running in self.truth.live:
            rows = self.db.look(
                "SELECT a.state, j.state FROM attempts a JOIN jobs j ON j.id = a.job WHERE a.id = ?", running.attempt
            )
            if not rows:
                raise Broken(f"{running.attempt} runs and has no row")
            attempt, job = rows[0]
            if attempt == "ended":
                raise Broken(f"{running.attempt} has ended by the books, and its program runs on {running.machine}")
            if job in TERMINAL:
                raise Broken(f"{running.job} is {job}, and its program runs on {running.machine}")

    def _intent(self, machine: str, ends_at: float | None) -> None:
        """Before an instance exists: it is wanted, that is committed, and it ends though nobody tells it to.

        Tells Truth, for its caller is the cloud.
        """
        rows = self.db.look("SELECT ends_at FROM machines WHERE id = ?", machine)
        if not rows or self.db.busy:
            return self.truth.broke(f"{machine} is made before its intent is committed")
        if ends_at is None or ends_at != rows[0][0]:
            return self.truth.broke(f"{machine} is made to end at {ends_at}, and its row says {rows[0][0]}")
        since = self._releasing.get(machine)
        if since is not None and self.now() > max(since, self.clock.stepped_at) + LAUNCH_SECONDS:
            self.truth.broke(f"{machine} is made {self.now() - since:.0f} s after it was given up")

    def look(self, calm_since: float | None) -> None:
        """Now and then: what must hold at any time."""
        state = (self.db.changes, self.truth.size, len(self.store.objects))
        if state != self._looked:
            self._looked = state
            self._compare()
        self._limits()
        if calm_since is not None:
            self._bound(calm_since)

    def _limits(self) -> None:
        """On the laptop time may stand still."""
        rented = {found.id for found in self.cloud.living()}
        for running in self.truth.live:
            if running.due is not None and running.machine in rented and self.now() > running.due + LIMIT_SECONDS:
                raise Broken(f"the program of {running.attempt} runs {self.now() - running.due:.0f} s beyond its limit")

    def _compare(self) -> None:
        self._acknowledged()
        self._cancelled()
        self._events()
        self._checkpoints()
        self._shelf.check()
        self._bills.check()
        self.safe.check()
        self.notices.check()
        self._note_releases()

    def _acknowledged(self) -> None:
        stored = {row[0] for row in self.db.look("SELECT id FROM jobs")}
        lost = [job for job in self.truth.submitted.values() if job not in stored]
        if lost:
            raise Broken(f"{lost[0]} was acknowledged and does not exist")
        twice = self.db.look("SELECT json_extract(spec, '$.name') FROM jobs GROUP BY 1 HAVING count(*) > 1")
        if twice:
            raise Broken(f"{twice[0][0]} was submitted under one key and exists twice")

    def _cancelled(self) -> None:
        """What somebody cancelled is wanted by nobody."""
        wanted = self.db.look(f"SELECT id, state FROM jobs WHERE desired != 'cancel' AND state NOT IN {TERMINAL}")  # noqa: S608
        for job, state in wanted:
            if job in self.truth.cancelled:
                raise Broken(f"the cancel of {job} was acknowledged, and it is {state} as if it never was")

    def _events(self) -> None:
        told = self.db.look("SELECT job, count(*), max(n), min(n) FROM events GROUP BY job")
        counts = {job: count for job, count in self.db.look("SELECT id, events FROM jobs")}  # noqa: C416
        for job, count, last, first in told:
            if (first, last, counts[job]) != (1, count, count):
                raise Broken(f"the events of {job} have a gap: {count} from {first} to {last}, {counts[job]} counted")

    def _checkpoints(self) -> None:
        rows = set(self.db.look("SELECT attempt, sha256 FROM checkpoints"))
        for key, saved in self.truth.saved.items():
            if key not in rows:
                raise Broken(f"a checkpoint of {saved.job} at step {saved.step} was acknowledged and has no row")

    def _bound(self, calm_since: float) -> None:
        self._released(calm_since)
        if self.now() - calm_since < BOUND_SECONDS:
            return
        slow = self.db.look(_UNENDED_CANCELS, self.clock.now() - BOUND_SECONDS)
        if slow:
            raise Broken(f"{slow[0][0]} was cancelled {BOUND_SECONDS:.0f} s ago and is still {slow[0][1]}")
        over = {row[0] for row in self.db.look(_OF_ENDED_JOBS, self.clock.now() - BOUND_SECONDS)}
        for found in self.cloud.living():
            if found.machine in over:
                raise Broken(f"{found.id} lives {BOUND_SECONDS:.0f} s after the end of its job")

    def _note_releases(self) -> None:
        rows = self.db.look("SELECT id FROM machines WHERE state IN ('releasing', 'gone')")
        self._releasing = {row[0]: self._releasing.get(row[0], self.now()) for row in rows}

    def _released(self, calm_since: float) -> None:
        """A machine that is being released is gone soon."""
        for (machine,) in self.db.look("SELECT id FROM machines WHERE state = 'releasing'"):
            since = max(self._releasing[machine], calm_since)
            if self.now() - since > BOUND_SECONDS:
                raise Broken(f"{machine} is being released for {self.now() - since:.0f} s")

    # At the end

    def unfinished(self) -> str:
        """What is left to do; empty when everything has come to its end."""
        jobs = self.db.look(f"SELECT id, state, waiting FROM jobs WHERE state NOT IN {TERMINAL}")  # noqa: S608
        if jobs:
            return f"{jobs[0][0]} is {jobs[0][1]} {jobs[0][2]}"
        effects = self.db.look("SELECT kind, machine, error FROM effects WHERE NOT done")
        if effects:
            return f"an effect is open: {effects[0][0]} {effects[0][1]} {effects[0][2]}"
        machines = self.db.look("SELECT id, state FROM machines WHERE backend = 'cloud' AND state != 'gone'")
        if machines:
            return f"{machines[0][0]} is {machines[0][1]}"
        living = [found.id for found in self.cloud.living()]
        if living:
            return f"{living[0]} lives"
        return self._bills.open() or self._shelf.left() or self.notices.untold()

    def finish(self) -> None:
        self._outcomes()
        self._bills.finish()
        self._shelf.finish()
        self.safe.check()
        for (job,) in self.db.look("SELECT id FROM jobs"):
            Story(self.db, self.truth).check(str(job))

    def pruned(self) -> None:
        """After everything was pruned: no object is left that no row knows."""
        left = self._shelf.strangers()
        if left:
            raise Broken(f"{left[0]} is in the store, and nobody knows it")

    def _outcomes(self) -> None:
        for job, state, reason in self.db.look("SELECT id, state, reason FROM jobs"):
            if state == "completed" and job not in self.truth.completed:
                raise Broken(f"{job} is completed, and its program never was")
            if reason == "exit_code" and job not in self.truth.failed:
                raise Broken(f"{job} failed by its exit code, and its program never exited with one")
        if self.truth.live:
            raise Broken(f"the program of {self.truth.live[0].attempt} still runs")
