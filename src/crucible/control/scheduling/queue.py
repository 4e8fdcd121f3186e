"""The queues: queued jobs by the backends on which they may run, in order of arrival.

Jobs with the same backends wait in one queue, so that reading the first of each finds a job for every backend, however
long another queue is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sqlalchemy import Connection, and_, bindparam, func, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement

_j = t.jobs.c
_READY = and_(_j.queue == bindparam("queue"), _j.not_before <= bindparam("now"))
_OWN = and_(_READY, _j.user == bindparam("user"))
_COLUMNS = (_j.id, _j.user, _j.priority)
_FIRST = Statement(select(*_COLUMNS).where(t.QUEUED, _READY).order_by(_j.id).limit(bindparam("limit")))
_USERS = Statement(select(_j.user).where(t.PRIORITISED, _j.queue == bindparam("queue")).distinct())
_PRIORITISED = Statement(
    select(*_COLUMNS).where(t.PRIORITISED, _OWN).order_by(_j.priority.desc(), _j.id).limit(bindparam("limit"))
)
_PLAIN = Statement(select(*_COLUMNS).where(t.QUEUED, _OWN, _j.priority == 0).order_by(_j.id).limit(bindparam("limit")))
_NEXT_QUEUE = Statement(select(func.min(_j.queue)).where(t.QUEUED, _j.queue > bindparam("after")))
"""The next queue, by name: one index lookup, however long the queues are."""

END_OF_TIME = 1e18
"""Later than any time at which a job may become ready."""
_SEPARATOR = ","


def queue_name(backends: Iterable[str]) -> str:
    """Return the name of the queue of jobs that may run on these backends."""
    return _SEPARATOR.join(sorted(set(backends)))


def backends_of_queue(name: str) -> list[str]:
    return name.split(_SEPARATOR)


def list_queues(conn: Connection) -> list[str]:
    """Return the queues that have jobs, sorted by name."""
    names: list[str] = []
    while (name := _NEXT_QUEUE.value(conn, after=names[-1] if names else "")) is not None:
        names.append(name)
    return names


def first_in_queue(conn: Connection, queue: str, limit: int, now: float = END_OF_TIME) -> list[str]:
    """Return the first `limit` jobs of the queue that are ready at `now`, in the order in which they get their turns.

    A priority counts wherever in the queue its job is, so the best jobs of users with priorities are also looked up
    behind the first `limit`.
    """
    first = _FIRST.all(conn, queue=queue, now=now, limit=limit)
    users = {row["user"] for row in _USERS.all(conn, queue=queue)}
    rows = {row["id"]: row for row in first}
    for user, turns in Counter(row["user"] for row in first if row["user"] in users).items():
        # Users keep the number of their turns among the first jobs, so this many of their best jobs are enough.
        own = {"queue": queue, "user": user, "now": now, "limit": turns}
        best = list(_PRIORITISED.all(conn, **own))
        if any(row["priority"] < 0 for row in first if row["user"] == user):
            best += _PLAIN.all(conn, **own)
        rows |= {row["id"]: row for row in best}
    turns_of = {user: iter(_by_priority(rows.values(), user)) for user in {row["user"] for row in first}}
    return [next(turns_of[row["user"]]) for row in first]


def _by_priority(rows: Iterable[Row], user: str) -> list[str]:
    own = sorted((row for row in rows if row["user"] == user), key=lambda row: (-row["priority"], row["id"]))
    return [row["id"] for row in own]
