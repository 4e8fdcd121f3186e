"""Check jobs on several machines: their machines are placed, lost and counted as a whole."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.simulation.faults.checks.event_order import InvariantBroken
from crucible.simulation.faults.world.ports import WallClock, WatchedDb

LATE_SECONDS = 300.0
"""Without faults, an attempt whose host is late is stopped within this time."""

_OF_GANGS = "attempts a JOIN jobs j ON j.id = a.job AND json_extract(j.spec, '$.nodes') > 1"
_WANTED = "a.state != 'ended' AND a.stopping_since IS NULL AND j.desired = 'run'"
_PARTIAL = f"""
SELECT a.id, count(DISTINCT m.id), json_extract(j.spec, '$.nodes') FROM {_OF_GANGS}
LEFT JOIN slots s ON s.attempt = a.id LEFT JOIN machines m ON m.id = s.machine
GROUP BY a.id HAVING count(s.rank) != json_extract(j.spec, '$.nodes') OR count(DISTINCT m.id) != count(s.rank)
"""  # noqa: S608
_BEREFT = f"""
SELECT a.id, s.rank FROM {_OF_GANGS} JOIN slots s ON s.attempt = a.id
WHERE {_WANTED} AND s.ended AND coalesce(s.reason, '') != 'completed'
"""  # noqa: S608
_LATE = f"""
SELECT a.id, m.id FROM {_OF_GANGS} JOIN slots s ON s.attempt = a.id JOIN machines m ON m.id = s.machine
WHERE {_WANTED} AND NOT s.ended AND m.up_at IS NULL AND m.host_due < ?
"""  # noqa: S608


@dataclass(frozen=True)
class GangCheck:
    """Checks the attempts of jobs that ask for several machines. Each check raises InvariantBroken."""

    db: WatchedDb
    clock: WallClock

    def check(self) -> None:
        """Check, after every commit, that attempts have all their machines, and that none continues without a rank."""
        for attempt, found, wanted in self.db.query(_PARTIAL):
            raise InvariantBroken(f"{attempt} was placed on {found} machines, and its job asks for {wanted}")
        for attempt, rank in self.db.query(_BEREFT):
            raise InvariantBroken(f"{attempt} has lost its rank {rank}, and its other ranks are to go on")

    def check_late(self) -> None:
        """Check, without faults, that no gang waits for a machine whose host did not come in time."""
        for attempt, machine in self.db.query(_LATE, self.clock.now() - LATE_SECONDS):
            raise InvariantBroken(f"{attempt} still waits for the host of {machine}, whose time is over")
