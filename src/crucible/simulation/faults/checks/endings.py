"""Check that nothing is terminated which is still wanted."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.simulation.faults.ground_truth import GroundTruth
from crucible.simulation.faults.world.cloud import Instance
from crucible.simulation.faults.world.machine import SimulatedMachine
from crucible.simulation.faults.world.ports import WallClock, WatchedDb

_MACHINE = "SELECT state, claimed_by, ends_at FROM machines WHERE id = ?"
_WANTED = """
SELECT j.id FROM attempts a JOIN jobs j ON j.id = a.job
WHERE a.id = ? AND a.state != 'ended' AND a.stopping_since IS NULL AND j.desired = 'run'
"""


@dataclass(frozen=True)
class TerminationCheck:
    """Checks terminations. Reports to the ground truth instead of raising, because its callers are the backends."""

    db: WatchedDb
    truth: GroundTruth
    clock: WallClock

    def check_instance(self, found: Instance) -> None:
        """Check a live instance that the cloud is asked to terminate."""
        rows = self.db.query(_MACHINE, found.machine)
        if not rows:
            return self.truth.report(f"{found.id} is ended, and no row knows {found.machine}")
        state, claimed_by, ends_at = rows[0]
        if state not in ("releasing", "gone") and claimed_by in (None, found.id):
            return self.truth.report(f"{found.id} is ended while {found.machine} is {state}")
        over = ends_at is not None and self.clock.now() >= float(str(ends_at))
        if not over and self.clock.stepped_at < found.created_at:
            self.check_programs(found.computer)

    def check_machine(self, machine: SimulatedMachine) -> None:
        """Check a machine on a node that its backend is asked to terminate."""
        ((state, _, ends_at),) = self.db.query(_MACHINE, machine.name)
        if state not in ("releasing", "gone"):
            return self.truth.report(f"{machine.native_id} is ended while {machine.name} is {state}")
        if ends_at is None or self.clock.now() < float(str(ends_at)):
            self.check_programs(machine)

    def check_programs(self, machine: SimulatedMachine) -> None:
        """Check that no program with a wanted attempt runs on a machine that is terminated."""
        for (attempt, _), program in machine.programs.items():
            if program.alive and self.db.query(_WANTED, attempt):
                return self.truth.report(
                    f"{machine.native_id} is ended under the program of {attempt}, which is wanted"
                )
