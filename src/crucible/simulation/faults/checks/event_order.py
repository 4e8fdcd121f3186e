"""A job's story: its events, read again from the start to see whether each of them could follow."""

from __future__ import annotations

import json
from dataclasses import dataclass

from crucible.simulation.faults.ground_truth import TERMINAL, GroundTruth
from crucible.simulation.faults.world.ports import WatchedDb


class InvariantBroken(Exception):
    """An invariant does not hold."""


@dataclass(frozen=True)
class EventOrderCheck:
    db: WatchedDb
    truth: GroundTruth

    def check(self, job: str) -> None:
        """Raises Broken for a try that nobody wanted any more, or that did not begin at the newest checkpoint, and for
        a job that was cancelled by nobody.
        """
        tries = {int(str(n)): str(name) for n, name in self.db.query(_TRIES, job)}
        newest: dict[int, int] = {}
        over = ""
        for kind, text in self.db.query(_EVENTS, job):
            data = json.loads(str(text))
            if kind == "checkpoint":
                newest[data["attempt"]] = data["step"]
            elif kind == "reopened":
                over = ""
            elif kind in TERMINAL or kind == "cancel_requested":
                if kind == "cancelled" and over != "cancel_requested":
                    raise InvariantBroken(f"{job} was cancelled, and nobody asked for that")
                over = str(kind)
            elif kind == "placed":
                if over:
                    raise InvariantBroken(f"try {data['attempt']} of {job} was placed after {over}")
                self._began(job, data["attempt"], tries[data["attempt"]], newest)

    def _began(self, job: str, number: int, attempt: str, newest: dict[int, int]) -> None:
        due = newest[max(newest)] if newest else 0
        for began in self.truth.began.get(attempt, ()):
            if began != due:
                raise InvariantBroken(
                    f"try {number} of {job} began at step {began}, its newest checkpoint was at {due}"
                )


_TRIES = "SELECT number, id FROM attempts WHERE job = ?"
_EVENTS = "SELECT type, data FROM events WHERE job = ? ORDER BY n"
