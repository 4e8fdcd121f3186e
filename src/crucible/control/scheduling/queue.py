"""The queue of a backend: waiting jobs in order of arrival, but that a user's own are in order of their priority."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sqlalchemy import Connection, and_, bindparam, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement
from crucible.control.reconcile import codec
from crucible.core.compute.scheduling import QueuedJob, by_priority

_j = t.jobs.c
_COLUMNS = (_j.id, _j.resources, _j.project, _j.user, _j.priority)
_READY = and_(_j.backend == bindparam("backend"), _j.not_before <= bindparam("now"))
_OWN = and_(_READY, _j.project == bindparam("project"), _j.user == bindparam("user"))
_FIRST = Statement(select(*_COLUMNS).where(t.QUEUED, _READY).order_by(_j.id).limit(bindparam("most")))
_OWNERS = Statement(select(_j.project, _j.user).where(t.PRIORITISED, _j.backend == bindparam("backend")).distinct())
_PRIORITISED = Statement(
    select(*_COLUMNS).where(t.PRIORITISED, _OWN).order_by(_j.priority.desc(), _j.id).limit(bindparam("most"))
)
_PLAIN = Statement(select(*_COLUMNS).where(t.QUEUED, _OWN, _j.priority == 0).order_by(_j.id).limit(bindparam("most")))

END_OF_TIME = 1e18
"""Later than any instant to which a job waits."""


def first_in_queue(conn: Connection, backend: str, most: int, now: float = END_OF_TIME) -> list[QueuedJob]:
    """Return the beginning of the queue, of the jobs that are ready by then.

    A priority anywhere in the queue counts: for the owners of such jobs their best are looked for behind the beginning.
    """
    first = _jobs(backend, _FIRST.all(conn, backend=backend, now=now, most=most))
    owners = {(row["project"], row["user"]) for row in _OWNERS.all(conn, backend=backend)}
    found = {queued.job: queued for queued in first}
    for (project, user), places in Counter(queued.owner for queued in first if queued.owner in owners).items():
        own = {"backend": backend, "project": project, "user": user, "now": now, "most": places}
        rows = list(_PRIORITISED.all(conn, **own))
        if any(queued.priority < 0 for queued in first if queued.owner == (project, user)):
            rows += _PLAIN.all(conn, **own)
        found |= {queued.job: queued for queued in _jobs(backend, rows)}
    return by_priority([found[job] for job in sorted(found)])[: len(first)]


def _jobs(backend: str, rows: Iterable[Row]) -> list[QueuedJob]:
    return [
        QueuedJob(r["id"], backend, codec.resources(r["resources"]), (r["project"], r["user"]), r["priority"])
        for r in rows
    ]
