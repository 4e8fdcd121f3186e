"""Gauges: how much goes on, for those who watch the service. Read by index or from memory, never from all jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, bindparam, func, select

from crucible.control.db import schema as t
from crucible.control.db.port import Db
from crucible.control.db.statement import Statement
from crucible.control.db.timed import TimedDb
from crucible.control.hooks.sending import Calls
from crucible.control.views import View
from crucible.core.lifecycle import JobState, MachineState
from crucible.core.states import Status, status_of

AGENT_SECONDS = 60.0
"""Since its last word a host counts as connected; that is stored in batches."""

_ACTIVE = tuple(state.value for state in JobState if not state.terminal)
_ALIVE = tuple(state.value for state in MachineState if state is not MachineState.GONE)
_j, _m, _h = t.jobs.c, t.machines.c, t.hooks.c
_JOBS = Statement(select(_j.state, func.count().label("n")).where(_j.state.in_(_ACTIVE)).group_by(_j.state))
_MACHINES = Statement(
    select(_m.backend, _m.state, func.count().label("n")).where(_m.state.in_(_ALIVE)).group_by(_m.backend, _m.state)
)
_WAITING = Statement(select(func.count()).select_from(t.hooks).where(_h.enabled.is_(True), _h.failures > 0))
_AGENTS = Statement(select(func.count()).where(_m.state == MachineState.UP.value, _m.last_seen >= bindparam("since")))


def stored(conn: Connection, now: float) -> View:
    """What the database knows: active jobs, machines that are not gone, hosts heard of lately, hooks that fail."""
    states = {JobState(row["state"]): int(row["n"]) for row in _JOBS.all(conn)}
    jobs = dict.fromkeys((Status.QUEUED.value, Status.RUNNING.value), 0)
    for state, count in states.items():
        jobs[status_of(state).value] += count
    machines = [{"backend": r["backend"], "state": r["state"], "count": int(r["n"])} for r in _MACHINES.all(conn)]
    agents = int(_AGENTS.value(conn, since=now - AGENT_SECONDS))
    return {
        "jobs": jobs,
        "queue": states.get(JobState.QUEUED, 0),
        "machines": machines,
        "agents": agents,
        "hooks_waiting": int(_WAITING.value(conn)),
    }


def counted(events: Mapping[str, int], launches: Mapping[tuple[str, str], int]) -> View:
    """What this process did since it started."""
    ended = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)
    return {
        "submitted": events.get("submitted", 0),
        "placed": events.get("placed", 0),
        "retried": events.get("retrying", 0),
        "ended": {status.value: events.get(status.value, 0) for status in ended},
        "launches": list(_launches(launches.items())),
    }


def _launches(items: Iterable[tuple[tuple[str, str], int]]) -> Iterable[View]:
    for (backend, outcome), count in sorted(items):
        yield {"backend": backend, "outcome": outcome, "count": count}


def write_times(db: Db) -> View | None:
    """How long writes took, where that is measured."""
    return db.writes.as_json() if isinstance(db, TimedDb) else None


def webhooks(calls: Calls) -> View:
    """What this process told receivers since it started."""
    return {"delivered": calls.delivered, "failed": calls.failed, "times": calls.times.as_json()}
