"""Replay a job's events from the start, and check that each may follow those before it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from crucible.simulation.faults.ground_truth import TERMINAL, GroundTruth
from crucible.simulation.faults.world.ports import WatchedDb


class InvariantBroken(Exception):
    """Raised by a check whose invariant does not hold."""


@dataclass(frozen=True)
class EventOrderCheck:
    db: WatchedDb
    truth: GroundTruth

    def check(self, job: str) -> None:
        """Raise InvariantBroken for an attempt after a cancel or an end, for one that did not begin at the newest
        checkpoint, and for a job that was cancelled without a request.
        """
        attempts = {int(str(n)): str(name) for n, name in self.db.query(_TRIES, job)}
        newest: dict[int, int] = {}
        ended_by = ""
        for kind, text in self.db.query(_EVENTS, job):
            data = json.loads(str(text))
            if kind == "checkpoint":
                newest[data["attempt"]] = data["step"]
            elif kind == "reopened":
                ended_by = ""
            elif kind in TERMINAL or kind == "cancel_requested":
                if kind == "cancelled" and ended_by != "cancel_requested":
                    raise InvariantBroken(f"{job} was cancelled, and nobody asked for that")
                ended_by = str(kind)
            elif kind == "placed":
                if ended_by:
                    raise InvariantBroken(f"try {data['attempt']} of {job} was placed after {ended_by}")
                self._check_start(job, data["attempt"], attempts[data["attempt"]], newest)

    def _check_start(self, job: str, number: int, attempt: str, newest: dict[int, int]) -> None:
        due = newest[max(newest)] if newest else 0
        for began in self.truth.began.get(attempt, ()):
            if began != due:
                raise InvariantBroken(
                    f"try {number} of {job} began at step {began}, its newest checkpoint was at {due}"
                )


_TRIES = "SELECT number, id FROM attempts WHERE job = ?"
_EVENTS = "SELECT type, data FROM events WHERE job = ? ORDER BY n"
