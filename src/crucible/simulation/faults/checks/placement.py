"""Check where each attempt was placed: the machine has capacity, and its job did not fail less often elsewhere."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from crucible.core.compute.offers import Market
from crucible.simulation.faults.checks.event_order import InvariantBroken
from crucible.simulation.faults.world.cloud import Cloud
from crucible.simulation.faults.world.ports import WallClock, WatchedDb

REMEMBERED_SECONDS = 1800.0
EDGE_SECONDS = 60.0
"""Tolerance around REMEMBERED_SECONDS: a failure of this age may count or not."""
PAUSE_SECONDS = 60.0
"""Longest time for which the scheduler does not try again what failed the job."""
KNOWN_SECONDS = 900.0
"""Time within which every server learns that a zone has capacity again."""

_ATTEMPTS = """
SELECT a.id, a.job, m.region, m.market, a.reason, a.ended_at FROM attempts a
JOIN slots s ON s.attempt = a.id AND s.rank = 0
JOIN machines m ON m.id = s.machine WHERE a.backend = 'cloud' ORDER BY a.job, a.number
"""
_OVERCOMMITTED = """
SELECT m.id, count(*) FROM machines m JOIN slots s ON s.machine = m.id AND NOT s.ended GROUP BY m.id
HAVING sum(json_extract(s.allocation, '$.cpus')) > json_extract(m.capacity, '$.cpus')
OR sum(json_extract(s.allocation, '$.memory_bytes')) > json_extract(m.capacity, '$.memory_bytes')
"""
_FAILURES = frozenset({"refused", "not_begun", "interrupted"})
_PAUSED = frozenset({"refused", "not_begun"})
_WRONG_MARKET = """
SELECT a.id, m.id, m.market, json_extract(j.spec, '$.market') FROM attempts a JOIN jobs j ON j.id = a.job
JOIN slots s ON s.attempt = a.id JOIN machines m ON m.id = s.machine
WHERE m.rate > 0 AND m.market != json_extract(j.spec, '$.market')
AND NOT (m.market = 'on_demand' AND coalesce(json_extract(j.spec, '$.spot_fallback'), 0))
"""
_LIVE = """
SELECT job, generation, count(*) FROM attempts WHERE state != 'ended' GROUP BY job, generation HAVING count(*) > 1
"""


@dataclass
class PlacementCheck:
    """Checks placements. Call `check` after every commit, so that it sees the state in which an attempt was placed."""

    db: WatchedDb
    cloud: Cloud
    clock: WallClock
    _count: object = 0
    _seen: set[object] = field(default_factory=set)

    def check(self) -> None:
        """Raise InvariantBroken for two live attempts of a job, for an overcommitted machine, for an attempt that pays
        for another market than its job asks for, and for one in a zone where its job failed more often than in another
        one with capacity.
        """
        count = self.db.query("SELECT count(*) FROM attempts")[0][0]
        if count == self._count:
            return
        self._count = count
        twice = self.db.query(_LIVE)
        if twice:
            raise InvariantBroken(f"{twice[0][0]} has {twice[0][2]} live tries in generation {twice[0][1]}")
        overcommitted = self.db.query(_OVERCOMMITTED)
        if overcommitted:
            raise InvariantBroken(f"{overcommitted[0][0]} has no room for all of its {overcommitted[0][1]} tries")
        for attempt, machine, market, wanted in self.db.query(_WRONG_MARKET):
            raise InvariantBroken(f"{attempt} runs on {machine}, which is {market}, and its job asks for {wanted}")
        attempts = self.db.query(_ATTEMPTS)
        for row in attempts:
            if row[0] not in self._seen:
                self._seen.add(row[0])
                self._check_zone(row, [other for other in attempts if other[1] == row[1] and other[0] != row[0]])

    def _check_zone(self, placed: tuple[object, ...], others: list[tuple[object, ...]]) -> None:
        attempt, _, zone, market = placed[:4]
        failed, paused = Counter(self._failed(others, market)), self._paused(others, market)
        better = [
            name
            for name in self.cloud.zones_in_stock(Market(str(market)), KNOWN_SECONDS)
            if self._less(failed, name, zone) and name not in paused
        ]
        if better:
            raise InvariantBroken(f"{attempt} was placed in {zone}, which failed its job more often than {min(better)}")

    def _paused(self, others: list[tuple[object, ...]], market: object) -> set[object]:
        """Return the zones in which the job failed so recently that the scheduler may not try them again yet."""
        since = self.clock.now() - PAUSE_SECONDS
        failed = [row for row in others if row[4] in _PAUSED and row[3] == market]
        return {zone for _, _, zone, _, _, ended_at in failed if float(str(ended_at)) > since}

    def _less(self, failed: Counter[tuple[object, bool]], name: str, zone: object) -> bool:
        """Return whether `name` surely failed the job less often: uncertain failures count only against `name`."""
        return failed[name, True] + failed[name, False] < failed[zone, True]

    def _failed(self, others: list[tuple[object, ...]], market: object) -> list[tuple[object, bool]]:
        """Return the zone of each failure, and whether it surely counts."""
        oldest = self.clock.now() - REMEMBERED_SECONDS
        return [
            (zone, float(str(ended_at)) > oldest + EDGE_SECONDS)
            for _, _, zone, where, reason, ended_at in others
            if reason in _FAILURES and where == market and float(str(ended_at)) > oldest - EDGE_SECONDS
        ]
