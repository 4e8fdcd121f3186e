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
    """In its data, `limit`: how many jobs of a user may be queued; `queued`: how many are."""

    code = "queue_full"


@dataclass(frozen=True)
class QueueLimit:
    most: int = DEFAULT_QUEUED

    def check(self, conn: Connection, user: str, jobs: int = 1) -> None:
        """Raise QueueFull if this many further jobs of the user may not be queued."""
        if user in _NO_LIMIT or not jobs:
            return
        row = _COUNT.first(conn, of_user=user)
        queued = row["queued"] if row is not None else 0
        if queued + jobs > self.most:
            found = f"{user} has {queued} queued jobs, and may have {self.most}"
            raise QueueFull(
                f"{found}." if jobs == 1 else f"{found}: these {jobs} do not fit, and none was submitted.",
                why="The number of queued jobs per user is limited, so that everybody's jobs get their turn.",
                fix="Submit again when some of them have started or ended, or cancel some: crucible cancel ID. "
                "The operator of the server can raise the limit: crucible config set queued_limit N, then "
                "crucible down and crucible up.",
                limit=self.most,
                queued=queued,
            )
