"""The audit log: each entry is written in the transaction of the action that it records."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sqlalchemy import Connection, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement, insert_row
from crucible.control.jobs.views import iso
from crucible.core.lifecycle import Job
from crucible.core.people.identity import OWNER, Identity
from crucible.core.views.people import AuditEntryView, AuditPage

MAX_TARGET = 200

_c = t.audit.c
_COLUMNS = ("at", "user", "name", "via", "token", "action", "target", "project", "data")
_ADD = Statement(insert_row(t.audit, _COLUMNS))


def record(
    conn: Connection,
    who: Identity,
    action: str,
    target: str,
    now: float,
    project: str | None = None,
    data: Mapping[str, object] | None = None,
) -> None:
    """Add an entry. `action` is an object and a verb, such as `job.cancel`. Never put secrets into `data`."""
    _ADD.run(
        conn,
        at=now,
        user=who.user,
        name=who.name,
        via=who.via.value,
        token=who.token,
        action=action,
        target=target[:MAX_TARGET],
        project=project,
        data=json.dumps(dict(data or {}), sort_keys=True),
    )


def record_job(
    conn: Connection, who: Identity, action: str, job: Job, now: float, data: Mapping[str, object] | None = None
) -> None:
    """Add an entry about a job, unless the owner acts on a job of their own: its events are enough."""
    if who is not OWNER or job.user not in ("", OWNER.name):
        record(conn, who, action, job.id, now, job.project, data)


def list_entries(conn: Connection, projects: frozenset[str] | None, before: int | None, limit: int) -> AuditPage:
    """Return a page of entries, newest first. `projects`: the ones to include, or None for all entries."""
    query = select(t.audit).order_by(_c.cursor.desc()).limit(limit + 1)
    if projects is not None:
        query = query.where(_c.project.in_(projects))
    if before is not None:
        query = query.where(_c.cursor < before)
    rows = conn.execute(query).mappings().all()
    page = rows[:limit]
    return AuditPage(items=tuple(map(_view, page)), next=page[-1]["cursor"] if len(rows) > len(page) else None)


def _view(row: Row) -> AuditEntryView:
    return AuditEntryView(
        cursor=row["cursor"],
        at=iso(row["at"]),
        user=row["name"],
        via=row["via"],
        token=row["token"],
        action=row["action"],
        target=row["target"],
        project=row["project"],
        data=json.loads(row["data"]),
    )
