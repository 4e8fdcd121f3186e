"""Tries to tell a receiver something, newest first and the last of each hook only. Functions of a Connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement, inserting
from crucible.control.hooks.messages import Message
from crucible.control.views import View, iso
from crucible.core.hooks import Outcome, Reply

KEPT = 100
"""Of each hook."""

_c = t.deliveries.c
_ADD = Statement(
    inserting(t.deliveries, ["hook", "message", "type", "job", "at", "seconds", "outcome", "status", "answer"])
)
_OF = Statement(
    select(t.deliveries).where(_c.hook == bindparam("of_hook")).order_by(_c.id.desc()).limit(bindparam("most"))
)
_LAST_KEPT = select(_c.id).where(_c.hook == bindparam("of_hook")).order_by(_c.id.desc()).offset(KEPT - 1).limit(1)
_TRIM = Statement(delete(t.deliveries).where(_c.hook == bindparam("of_hook"), _c.id < _LAST_KEPT.scalar_subquery()))
_REMOVE = Statement(delete(t.deliveries).where(_c.hook == bindparam("of_hook")))


@dataclass(frozen=True)
class Try:
    """One message, sent once: when, how long it took, and what came of it."""

    message: Message
    at: float
    seconds: float
    reply: Reply
    outcome: Outcome


def add(conn: Connection, hook: str, tried: Try) -> None:
    _ADD.run(
        conn,
        hook=hook,
        message=tried.message.id,
        type=tried.message.type,
        job=tried.message.job,
        at=tried.at,
        seconds=tried.seconds,
        outcome=tried.outcome.value,
        status=tried.reply.status,
        answer=tried.reply.text,
    )
    _TRIM.run(conn, of_hook=hook)


def of(conn: Connection, hook: str, most: int = KEPT) -> list[View]:
    return [_view(row) for row in _rows(conn, hook, most)]


def last(conn: Connection, hook: str) -> View | None:
    return next(iter(of(conn, hook, 1)), None)


def remove(conn: Connection, hook: str) -> None:
    _REMOVE.run(conn, of_hook=hook)


def _rows(conn: Connection, hook: str, most: int) -> Sequence[Row]:
    return _OF.all(conn, of_hook=hook, most=min(max(most, 1), KEPT))


def _view(row: Row) -> View:
    return {
        "id": row["message"],
        "type": row["type"],
        "job": row["job"],
        "at": iso(row["at"]),
        "seconds": round(row["seconds"], 3),
        "outcome": row["outcome"],
        "status": row["status"],
        "answer": row["answer"] or None,
    }
