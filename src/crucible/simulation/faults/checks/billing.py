"""Compare the cost of a machine in our ledger with the cloud's own meter."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from crucible.core.compute.offers import Billing
from crucible.core.compute.pricing import Segment, machine_cost
from crucible.simulation.faults.checks.event_order import InvariantBroken
from crucible.simulation.faults.world.cloud import Cloud
from crucible.simulation.faults.world.ports import WallClock, WatchedDb

_SEGMENTS = "SELECT starts_at, ends_at, rate, native_id FROM price_segments WHERE machine = ? ORDER BY n"


@dataclass
class BillingCheck:
    """Compares bills of machines. Each check raises InvariantBroken."""

    db: WatchedDb
    cloud: Cloud
    clock: WallClock
    _settled: set[object] = field(default_factory=set)

    def check(self) -> None:
        """Check that each bill closed since the last call equals the cloud's, to the micro-dollar."""
        for machine, billing in self.db.query("SELECT id, billing FROM machines WHERE backend = 'cloud' AND metered"):
            if machine not in self._settled:
                self._compare(str(machine), str(billing))
                self._settled.add(machine)

    def finish(self) -> None:
        for machine, billing in self.db.query("SELECT id, billing FROM machines WHERE backend = 'cloud'"):
            self._compare(str(machine), str(billing))

    def open(self) -> str:
        """Return a sentence that names an open bill, or ""."""
        bills = self.db.query("SELECT id FROM machines WHERE backend = 'cloud' AND NOT metered")
        return f"the bill of {bills[0][0]} is open" if bills else ""

    def _compare(self, machine: str, billing: str) -> None:
        segments = [Segment(*row) for row in self.db.query(_SEGMENTS, machine)]  # type: ignore[arg-type]
        ours = machine_cost(segments, Billing(**json.loads(billing)), self.clock.now()) if segments else 0
        theirs = self.cloud.billed(machine)
        if ours != theirs:
            raise InvariantBroken(f"{machine} cost {ours} micro-dollars by our ledger, {theirs} by the cloud's meter")
