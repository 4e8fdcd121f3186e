"""Replay a job's events from the start, and check that each may follow those before it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from crucible.core.lifecycle.reasons import Reason, Retry
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
        checkpoint, for a job that was cancelled without a request, for one that pays for an attempt that we ended, and
        for an attempt that is counted more than once.
        """
        attempts = {int(str(n)): str(name) for n, name in self.db.query(_TRIES, job)}
        newest: dict[int, int] = {}
        used: dict[Retry, int] = {}
        ended_by = ""
        for kind, text in self.db.query(_EVENTS, job):
            data = json.loads(str(text))
            if kind == "checkpoint":
                newest[data["attempt"]] = data["step"]
            elif kind == "reopened":
                used, ended_by = {}, ""
            elif kind == "retrying":
                _check_free(job, data)
                _check_count(job, data, used)
            elif kind in TERMINAL or kind == "cancel_requested":
                if kind == "cancelled" and ended_by != "cancel_requested":
                    raise InvariantBroken(f"{job} was cancelled, and nobody asked for that")
                if data.get("reason") in _FREE:
                    raise InvariantBroken(f"{job} is {kind} because we ended its attempt: {data['reason']}")
                ended_by = str(kind)
            elif kind == "placed":
                if ended_by:
                    raise InvariantBroken(f"try {data['attempt']} of {job} was placed after {ended_by}")
                self._check_start(job, data["attempt"], attempts[data["attempt"]], newest)

    def _check_start(self, job: str, number: int, attempt: str, newest: dict[int, int]) -> None:
        due = newest[max(newest)] if newest else 0
        for began in (step for (of, _), steps in self.truth.began.items() if of == attempt for step in steps):
            if began != due:
                raise InvariantBroken(
                    f"try {number} of {job} began at step {began}, its newest checkpoint was at {due}"
                )


def _check_free(job: str, data: dict[str, object]) -> None:
    """Check that an attempt which we ended ourselves costs the job no retry and no wait."""
    if data["after"] in _FREE and (data["try"], data["wait_seconds"]) != (1, 0):
        raise InvariantBroken(f"{job} was charged for an attempt that we ended: {data['after']}")


def _check_count(job: str, data: dict[str, object], used: dict[Retry, int]) -> None:
    """Check that an attempt uses at most one retry of its kind, and note how many are used now."""
    retry, number = Reason(str(data["after"])).policy.retry, int(str(data["try"]))
    if number > used.get(retry, 0) + 1:
        raise InvariantBroken(f"{job} was charged for {number} retries after {used.get(retry, 0)}: {data['after']}")
    used[retry] = number


_FREE = frozenset({"stopped", "withdrawn"})
"""Ends of an attempt that are our own doing."""
_TRIES = "SELECT number, id FROM attempts WHERE job = ?"
_EVENTS = "SELECT type, data FROM events WHERE job = ? ORDER BY n"
