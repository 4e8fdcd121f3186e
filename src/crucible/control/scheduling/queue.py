"""The queue of a backend: its queued jobs in order of arrival, where each user's own are in order of priority."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sqlalchemy import Connection, and_, bindparam, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement
from crucible.control.reconcile import codec
from crucible.core.compute.scheduling import QueuedJob, by_priority

_j = t.jobs.c
_COLUMNS = (_j.id, _j.resources, _j.user, _j.priority)
_READY = and_(_j.backend == bindparam("backend"), _j.not_before <= bindparam("now"))
_OWN = and_(_READY, _j.user == bindparam("user"))
_FIRST = Statement(select(*_COLUMNS).where(t.QUEUED, _READY).order_by(_j.id).limit(bindparam("limit")))
_USERS = Statement(select(_j.user).where(t.PRIORITISED, _j.backend == bindparam("backend")).distinct())
_PRIORITISED = Statement(
    select(*_COLUMNS).where(t.PRIORITISED, _OWN).order_by(_j.priority.desc(), _j.id).limit(bindparam("limit"))
)
_PLAIN = Statement(select(*_COLUMNS).where(t.QUEUED, _OWN, _j.priority == 0).order_by(_j.id).limit(bindparam("limit")))

END_OF_TIME = 1e18
"""Later than any time at which a job may become ready."""


def first_in_queue(conn: Connection, backend: str, limit: int, now: float = END_OF_TIME) -> list[QueuedJob]:
    """Return the first `limit` jobs of the queue that are ready at `now`.

    A priority counts wherever in the queue its job is, so the best jobs of users with priorities are also looked up
    behind the first `limit`.
    """
    first = _queued_jobs(backend, _FIRST.all(conn, backend=backend, now=now, limit=limit))
    users = {row["user"] for row in _USERS.all(conn, backend=backend)}
    candidates = {queued.job: queued for queued in first}
    for user, positions in Counter(queued.user for queued in first if queued.user in users).items():
        # Users keep the number of their positions among the first jobs, so this many of their best jobs are enough.
        own = {"backend": backend, "user": user, "now": now, "limit": positions}
        rows = list(_PRIORITISED.all(conn, **own))
        if any(queued.priority < 0 for queued in first if queued.user == user):
            rows += _PLAIN.all(conn, **own)
        candidates |= {queued.job: queued for queued in _queued_jobs(backend, rows)}
    return by_priority([candidates[job] for job in sorted(candidates)])[: len(first)]


def _queued_jobs(backend: str, rows: Iterable[Row]) -> list[QueuedJob]:
    return [QueuedJob(r["id"], backend, codec.parse_resources(r["resources"]), r["user"], r["priority"]) for r in rows]
