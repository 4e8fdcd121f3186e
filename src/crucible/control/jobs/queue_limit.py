"""Limits how many jobs of one user are queued at a time, so that nobody fills the queue for all."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, func, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.core.errors import Conflict
from crucible.core.people.identity import OWNER

DEFAULT_QUEUED = 500

_NO_LIMIT = frozenset({OWNER.name, ""})
"""The owner, who would only limit themselves; jobs of before there were users have no name."""

_COUNT = Statement(
    select(func.count().label("queued")).where(t.WAITING, t.jobs.c.user == bindparam("of_user")).select_from(t.jobs)
)


class QueueFull(Conflict):
    """`limit` in its data: how many jobs of a user may be queued."""

    code = "queue_full"


@dataclass(frozen=True)
class QueueLimit:
    most: int = DEFAULT_QUEUED

    def check(self, conn: Connection, user: str) -> None:
        """Raise QueueFull if no further job of this user may be queued."""
        if user in _NO_LIMIT:
            return
        row = _COUNT.first(conn, of_user=user)
        queued = row["queued"] if row is not None else 0
        if queued >= self.most:
            raise QueueFull(
                f"{user} has {queued} queued jobs, and may have {self.most}.",
                why="The number of queued jobs per user is limited, so that everybody's jobs get their turn.",
                fix="Submit again when some of them have started or ended, or cancel some: crucible cancel ID. "
                "The operator of the server can raise the limit: crucible config set queued_limit N, then "
                "crucible down and crucible up.",
                limit=self.most,
            )
