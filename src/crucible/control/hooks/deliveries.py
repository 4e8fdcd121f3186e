"""Read and write the rows of deliveries: the last hundred attempts of each hook."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement, insert_row
from crucible.control.hooks.messages import Message
from crucible.control.hooks.sender import SendResult
from crucible.control.jobs.views import iso
from crucible.core.hooks import DeliveryOutcome
from crucible.core.views.hooks import DeliveryView

MAX_KEPT = 100
"""Number of deliveries kept for each hook."""

_c = t.deliveries.c
_ADD = Statement(
    insert_row(t.deliveries, ["hook", "message", "type", "job", "at", "seconds", "outcome", "status", "answer"])
)
_NEWEST = Statement(
    select(t.deliveries).where(_c.hook == bindparam("of_hook")).order_by(_c.id.desc()).limit(bindparam("limit"))
)
_LAST_KEPT = select(_c.id).where(_c.hook == bindparam("of_hook")).order_by(_c.id.desc()).offset(MAX_KEPT - 1).limit(1)
_TRIM = Statement(delete(t.deliveries).where(_c.hook == bindparam("of_hook"), _c.id < _LAST_KEPT.scalar_subquery()))


def add(conn: Connection, hook: str, message: Message, sent: SendResult, outcome: DeliveryOutcome) -> None:
    """Add an attempt, and delete the oldest ones beyond MAX_KEPT."""
    _ADD.run(
        conn,
        hook=hook,
        message=message.id,
        type=message.type,
        job=message.job,
        at=sent.at,
        seconds=sent.seconds,
        outcome=outcome.value,
        status=sent.reply.status,
        answer=sent.reply.text,
    )
    _TRIM.run(conn, of_hook=hook)


def list_deliveries(conn: Connection, hook: str, limit: int = MAX_KEPT) -> list[DeliveryView]:
    """Return the last attempts, newest first."""
    return [_view(row) for row in _NEWEST.all(conn, of_hook=hook, limit=min(max(limit, 1), MAX_KEPT))]


def last(conn: Connection, hook: str) -> DeliveryView | None:
    return next(iter(list_deliveries(conn, hook, 1)), None)


def _view(row: Row) -> DeliveryView:
    return DeliveryView(
        id=row["message"],
        type=row["type"],
        job=row["job"],
        at=iso(row["at"]),
        seconds=round(row["seconds"], 3),
        outcome=row["outcome"],
        status=row["status"],
        answer=row["answer"] or None,
    )
