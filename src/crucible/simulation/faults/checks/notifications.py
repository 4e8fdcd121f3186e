"""Compare the notifications that a webhook receiver got with the events that happened."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from crucible.core.hooks import ENDS
from crucible.simulation.faults.checks.event_order import InvariantBroken
from crucible.simulation.faults.ground_truth import GroundTruth
from crucible.simulation.faults.world.ports import WatchedDb

EVENTS = ENDS
"""The events that the hooks of a run subscribe to."""
_TYPES = tuple(event.value for event in EVENTS)
_EVENT = "SELECT type, cursor FROM events WHERE job = ? AND n = ?"
_ENDS = f"""
SELECT job, n, type FROM events WHERE cursor > ? AND cursor <= ? AND type IN {_TYPES} ORDER BY cursor
"""  # noqa: S608


@dataclass(frozen=True)
class Notification:
    """The content of a message to one of the receiver's URLs: event `n` of the job is of this kind."""

    url: str
    job: str
    n: int
    kind: str


@dataclass
class NotificationCheck:
    """Records every message on arrival. Reports bad ones to the ground truth, because its caller is the receiver."""

    db: WatchedDb
    truth: GroundTruth
    _received: set[Notification] = field(default_factory=set)
    _last: dict[str, int] = field(default_factory=dict)
    _promised: dict[str, int] = field(default_factory=dict)
    _passed: dict[str, int] = field(default_factory=dict)

    def record_hook(self, url: str) -> None:
        """Record an acknowledged hook: every event from now on must be sent there."""
        newest = self.db.query("SELECT max(cursor) FROM events")[0][0]
        self._promised[url] = int(str(newest or 0))

    def record(self, notification: Notification) -> None:
        """Record a message, and check that the event happened, is subscribed to, and comes in order."""
        rows = self.db.query(_EVENT, notification.job, notification.n)
        if not rows or rows[0][0] != notification.kind or notification.kind not in _TYPES:
            return self.truth.report(
                f"{notification.url} was told that {notification.job} {notification.kind}, which did not happen"
            )
        if notification in self._received:
            return
        cursor = int(str(rows[0][1]))
        if cursor < self._last.get(notification.url, 0):
            return self.truth.report(f"{notification.url} was told late that {notification.job} {notification.kind}")
        self._last[notification.url] = cursor
        self._received.add(notification)

    def report_unsigned(self, url: str, why: str) -> None:
        self.truth.report(f"{url} was sent what nobody signed: {why}")

    def check(self) -> None:
        """Raise InvariantBroken if a hook's cursor has passed an event that its receiver never got."""
        for url, cursor in self.db.query("SELECT url, cursor FROM hooks"):
            upto = int(str(cursor))
            if upto != self._passed.get(str(url)):
                self._passed[str(url)] = upto
                missing = self._find_missing(str(url), upto)
                if missing:
                    raise InvariantBroken(f"{missing}, and nobody will")

    def missing(self) -> str:
        """Return a sentence that names an event which no receiver got yet, or ""."""
        return next((found for url in self._promised if (found := self._find_missing(url, sys.maxsize))), "")

    def _find_missing(self, url: str, upto: int) -> str:
        for job, n, kind in self.db.query(_ENDS, self._promised.get(url, upto), upto):
            if Notification(url, str(job), int(str(n)), str(kind)) not in self._received:
                return f"{url} was not told that {job} {kind}"
        return ""
