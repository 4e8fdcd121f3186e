"""Notices: what a receiver was told, against what happened."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from crucible.core.hooks import ENDS
from crucible.simulation.faults.checks.event_order import InvariantBroken
from crucible.simulation.faults.ground_truth import GroundTruth
from crucible.simulation.faults.world.ports import WatchedDb

EVENTS = ENDS
"""What hooks ask to be told."""
_TYPES = tuple(event.value for event in EVENTS)
_EVENT = "SELECT type, cursor FROM events WHERE job = ? AND n = ?"
_ENDS = f"""
SELECT job, n, type FROM events WHERE cursor > ? AND cursor <= ? AND type IN {_TYPES} ORDER BY cursor
"""  # noqa: S608


@dataclass(frozen=True)
class Notification:
    """What a message told, at one of the receiver's addresses: that event `n` of the job is of this kind."""

    url: str
    job: str
    n: int
    kind: str


@dataclass
class NotificationCheck:
    """Told of every message as it arrives; tells Truth, for its caller is the receiver."""

    db: WatchedDb
    truth: GroundTruth
    _heard: set[Notification] = field(default_factory=set)
    _last: dict[str, int] = field(default_factory=dict)
    _promised: dict[str, int] = field(default_factory=dict)
    _passed: dict[str, int] = field(default_factory=dict)

    def record_hook(self, url: str) -> None:
        """A hook was acknowledged: whatever happens from now on is told there."""
        newest = self.db.query("SELECT max(cursor) FROM events")[0][0]
        self._promised[url] = int(str(newest or 0))

    def record(self, notice: Notification) -> None:
        """It happened, it is what was asked for, and nothing that happened later was told before it."""
        rows = self.db.query(_EVENT, notice.job, notice.n)
        if not rows or rows[0][0] != notice.kind or notice.kind not in _TYPES:
            return self.truth.report(f"{notice.url} was told that {notice.job} {notice.kind}, which did not happen")
        if notice in self._heard:
            return
        cursor = int(str(rows[0][1]))
        if cursor < self._last.get(notice.url, 0):
            return self.truth.report(f"{notice.url} was told late that {notice.job} {notice.kind}")
        self._last[notice.url] = cursor
        self._heard.add(notice)

    def report_unsigned(self, url: str, why: str) -> None:
        self.truth.report(f"{url} was sent what nobody signed: {why}")

    def check(self) -> None:
        """What a hook has passed its receiver was told. Raises Broken."""
        for url, cursor in self.db.query("SELECT url, cursor FROM hooks"):
            upto = int(str(cursor))
            if upto != self._passed.get(str(url)):
                self._passed[str(url)] = upto
                untold = self._untold(str(url), upto)
                if untold:
                    raise InvariantBroken(f"{untold}, and nobody will")

    def missing(self) -> str:
        """What a receiver is yet to be told, in words; empty when nothing is."""
        return next((untold for url in self._promised if (untold := self._untold(url, sys.maxsize))), "")

    def _untold(self, url: str, upto: int) -> str:
        for job, n, kind in self.db.query(_ENDS, self._promised.get(url, upto), upto):
            if Notification(url, str(job), int(str(n)), str(kind)) not in self._heard:
                return f"{url} was not told that {job} {kind}"
        return ""
