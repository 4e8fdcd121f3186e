"""Findings: the checkers. Each compares what the control plane says with what is true."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from crucible.core.offers import Billing
from crucible.core.pricing import Segment, machine_cost
from crucible.simulation.faults.cloud import Cloud
from crucible.simulation.faults.ports import WatchedDb
from crucible.simulation.faults.story import Broken, Story
from crucible.simulation.faults.truth import Truth

TERMINAL = ("completed", "failed", "cancelled")
BOUND_SECONDS = 900.0
"""With nothing failing, what is to end has ended within this time."""


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
    """Every check raises Broken. `now` is virtual time, `wall` what the control plane's clock says."""

    db: WatchedDb
    truth: Truth
    cloud: Cloud
    now: Callable[[], float]
    wall: Callable[[], float]
    _releasing: dict[object, float] = field(default_factory=dict)

    def commit(self) -> None:
        """After every commit: nothing runs that is over by the books."""
        self._programs()
        if self.cloud.honours_tokens:
            self._gone()

    def _gone(self) -> None:
        """A cloud that makes two for one token has more than the books know: that is for the end to show."""
        for found in self.cloud.living():
            if self.db.look("SELECT 1 FROM machines WHERE id = ? AND state = 'gone'", found.machine):
                raise Broken(f"{found.machine} is gone by the books, and {found.id} lives")

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

    def look(self, calm_since: float | None) -> None:
        """Now and then: what must hold at any time."""
        self._acknowledged()
        self._events()
        self._intents()
        self._checkpoints()
        if calm_since is not None:
            self._bound(calm_since)

    def _acknowledged(self) -> None:
        stored = {row[0] for row in self.db.look("SELECT id FROM jobs")}
        lost = [job for job in self.truth.submitted.values() if job not in stored]
        if lost:
            raise Broken(f"{lost[0]} was acknowledged and does not exist")

    def _events(self) -> None:
        told = self.db.look("SELECT job, count(*), max(n), min(n) FROM events GROUP BY job")
        counts = {job: count for job, count in self.db.look("SELECT id, events FROM jobs")}  # noqa: C416
        for job, count, last, first in told:
            if (first, last, counts[job]) != (1, count, count):
                raise Broken(f"the events of {job} have a gap: {count} from {first} to {last}, {counts[job]} counted")

    def _intents(self) -> None:
        known = {row[0] for row in self.db.look("SELECT id FROM machines")}
        for found in self.cloud.instances.values():
            if found.machine not in known:
                raise Broken(f"{found.id} was made as {found.machine}, which has no row")

    def _checkpoints(self) -> None:
        rows = set(self.db.look("SELECT attempt, sha256 FROM checkpoints"))
        for key, saved in self.truth.saved.items():
            if key not in rows:
                raise Broken(f"a checkpoint of {saved.job} at step {saved.step} was acknowledged and has no row")

    def _bound(self, calm_since: float) -> None:
        self._released()
        if self.now() - calm_since < BOUND_SECONDS:
            return
        slow = self.db.look(_UNENDED_CANCELS, self.wall() - BOUND_SECONDS)
        if slow:
            raise Broken(f"{slow[0][0]} was cancelled {BOUND_SECONDS:.0f} s ago and is still {slow[0][1]}")
        over = {row[0] for row in self.db.look(_OF_ENDED_JOBS, self.wall() - BOUND_SECONDS)}
        for found in self.cloud.living():
            if found.machine in over:
                raise Broken(f"{found.id} lives {BOUND_SECONDS:.0f} s after the end of its job")

    def _released(self) -> None:
        """A machine that is being released is gone soon."""
        now = self.now()
        rows = self.db.look("SELECT id FROM machines WHERE state = 'releasing'")
        self._releasing = {row[0]: self._releasing.get(row[0], now) for row in rows}
        for machine, since in self._releasing.items():
            if now - since > BOUND_SECONDS:
                raise Broken(f"{machine} is being released for {now - since:.0f} s")

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
        bills = self.db.look("SELECT id FROM machines WHERE backend = 'cloud' AND NOT metered")
        return f"the bill of {bills[0][0]} is open" if bills else ""

    def finish(self) -> None:
        self._outcomes()
        self._ledger()
        self._stories()

    def _outcomes(self) -> None:
        for job, state, reason in self.db.look("SELECT id, state, reason FROM jobs"):
            if state == "completed" and job not in self.truth.completed:
                raise Broken(f"{job} is completed, and its program never was")
            if reason == "exit_code" and job not in self.truth.failed:
                raise Broken(f"{job} failed by its exit code, and its program never exited with one")
        if self.truth.live:
            raise Broken(f"the program of {self.truth.live[0].attempt} still runs")

    def _ledger(self) -> None:
        for machine, billing in self.db.look("SELECT id, billing FROM machines WHERE backend = 'cloud'"):
            rows = self.db.look(
                "SELECT starts_at, ends_at, rate, native_id FROM price_segments WHERE machine = ? ORDER BY n", machine
            )
            segments = [Segment(*row) for row in rows]  # type: ignore[arg-type]
            ours = machine_cost(segments, Billing(**json.loads(str(billing))), self.wall()) if segments else 0
            theirs = self.cloud.billed(str(machine))
            if ours != theirs:
                raise Broken(f"{machine} cost {ours} micro-dollars by our ledger, {theirs} by the cloud's meter")

    def _stories(self) -> None:
        for (job,) in self.db.look("SELECT id FROM jobs"):
            Story(self.db, self.truth).check(str(job))
