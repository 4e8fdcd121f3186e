"""Instants that were written down under a clock which has been set back since: nothing waits for them."""

from __future__ import annotations

import structlog
from sqlalchemy import Connection, select, update

from crucible.control.db import schema as t
from crucible.control.db.statement import Statement

log = structlog.get_logger(__name__)

MARGIN = 60.0
"""Seconds that the newest event may be ahead of the clock before that is news."""
_LATEST = Statement(select(t.events.c.at).order_by(t.events.c.cursor.desc()).limit(1))


def clear_future_deadlines(conn: Connection, now: float) -> bool:
    """What was to be tried again, or looked at, at an instant ahead is due now. Whether the clock was set back."""
    latest = _LATEST.value(conn)
    if latest is None or latest <= now + MARGIN:
        return False
    log.warning("the clock was set back since the last run", seconds=round(latest - now))
    jobs, plans = t.jobs.c, t.plans.c
    for column in (t.effects.c.not_before, t.hooks.c.not_before, jobs.not_before, jobs.due_at, plans.due_at):
        conn.execute(update(column.table).where(column > now).values({column.name: now}))
    return True
