"""Gauges for monitoring the service. Read through indexes or from memory, never by scanning all jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, func, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.hooks.sender import SendStats
from crucible.control.runtime.durations import DurationHistogram
from crucible.core.job.states import Status, status_of
from crucible.core.lifecycle import JobState, MachineState

AGENT_SECONDS = 60.0
"""A host counts as connected for this long after its last message. Contacts are stored in batches."""

_ACTIVE = tuple(state.value for state in JobState if not state.terminal)
_ALIVE = tuple(state.value for state in MachineState if state is not MachineState.GONE)
_j, _m, _h = t.jobs.c, t.machines.c, t.hooks.c
_JOBS = Statement(select(_j.state, func.count().label("n")).where(_j.state.in_(_ACTIVE)).group_by(_j.state))
_MACHINES = Statement(
    select(_m.backend, _m.state, func.count().label("n")).where(_m.state.in_(_ALIVE)).group_by(_m.backend, _m.state)
)
_WAITING = Statement(select(func.count()).select_from(t.hooks).where(_h.enabled.is_(True), _h.failures > 0))
_AGENTS = Statement(select(func.count()).where(_m.state == MachineState.UP.value, _m.last_seen >= bindparam("since")))


@dataclass(frozen=True)
class StoredCounts:
    """Counts from the database. `jobs`: active ones by status. `machines`: those not gone, by backend and state."""

    jobs: Mapping[str, int]
    queue: int
    machines: Mapping[tuple[str, str], int]
    agents: int
    hooks_waiting: int


@dataclass(frozen=True)
class ServiceMetrics:
    """`events`, `launches` (by backend and outcome), `webhooks` and `writes` count since this process started."""

    stored: StoredCounts
    events: Mapping[str, int]
    launches: Mapping[tuple[str, str], int]
    webhooks: SendStats
    writes: DurationHistogram | None


def count_stored(conn: Connection, now: float) -> StoredCounts:
    states = {JobState(row["state"]): int(row["n"]) for row in _JOBS.all(conn)}
    jobs = dict.fromkeys((Status.QUEUED.value, Status.RUNNING.value), 0)
    for state, count in states.items():
        jobs[status_of(state).value] += count
    return StoredCounts(
        jobs=jobs,
        queue=states.get(JobState.QUEUED, 0),
        machines={(row["backend"], row["state"]): int(row["n"]) for row in _MACHINES.all(conn)},
        agents=int(_AGENTS.value(conn, since=now - AGENT_SECONDS)),
        hooks_waiting=int(_WAITING.value(conn)),
    )
