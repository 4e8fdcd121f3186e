"""The queue of a backend: waiting jobs in order of arrival, with each user's own in order of priority."""

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
_FIRST = Statement(select(*_COLUMNS).where(t.QUEUED, _READY).order_by(_j.id).limit(bindparam("most")))
_USERS = Statement(select(_j.user).where(t.PRIORITISED, _j.backend == bindparam("backend")).distinct())
_PRIORITISED = Statement(
    select(*_COLUMNS).where(t.PRIORITISED, _OWN).order_by(_j.priority.desc(), _j.id).limit(bindparam("most"))
)
_PLAIN = Statement(select(*_COLUMNS).where(t.QUEUED, _OWN, _j.priority == 0).order_by(_j.id).limit(bindparam("most")))

END_OF_TIME = 1e18
"""Later than any instant for which a job waits."""


def first_in_queue(conn: Connection, backend: str, most: int, now: float = END_OF_TIME) -> list[QueuedJob]:
    """Return the first `most` jobs of the queue that are ready at `now`.

    A priority counts wherever in the queue its job is: for users who gave one, their best jobs are looked up behind
    the beginning too.
    """
    first = _queued_jobs(backend, _FIRST.all(conn, backend=backend, now=now, most=most))
    users = {row["user"] for row in _USERS.all(conn, backend=backend)}
    found = {queued.job: queued for queued in first}
    for user, positions in Counter(queued.user for queued in first if queued.user in users).items():
        # A user can fill no more positions than they have among the first, so that many of their best are enough.
        own = {"backend": backend, "user": user, "now": now, "most": positions}
        rows = list(_PRIORITISED.all(conn, **own))
        if any(queued.priority < 0 for queued in first if queued.user == user):
            rows += _PLAIN.all(conn, **own)
        found |= {queued.job: queued for queued in _queued_jobs(backend, rows)}
    return by_priority([found[job] for job in sorted(found)])[: len(first)]


def _queued_jobs(backend: str, rows: Iterable[Row]) -> list[QueuedJob]:
    return [QueuedJob(r["id"], backend, codec.parse_resources(r["resources"]), r["user"], r["priority"]) for r in rows]
