"""Build the messages of hooks: an event of the feed with a summary of its job, as the bytes to send."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement
from crucible.control.hooks.rows import Hook
from crucible.control.jobs import queries
from crucible.control.jobs.views import event_view, iso
from crucible.core.errors import NotFound
from crucible.core.hooks import HookFormat
from crucible.core.ids import short

WINDOW = 1000
"""Number of events in the feed that one query scans."""
PING = "ping"

_e = t.events.c
_project = select(t.jobs.c.project).where(t.jobs.c.id == _e.job).scalar_subquery()
"""A subquery for each event. With a join, a database might begin with all jobs of the project."""
_NEXT = Statement(
    select(t.events)
    .where(
        _e.cursor > bindparam("after"),
        _e.cursor <= bindparam("upto"),
        _e.type.in_(bindparam("types", expanding=True)),
        _project == bindparam("in_project"),
    )
    .order_by(_e.cursor)
    .limit(1)
)
_JOB_FIELDS = (
    *("id", "short", "name", "project", "user", "kind", "tags", "status", "phase", "reason"),
    *("backend", "previous_backend", "attempt", "cost", "exit_code", "signal"),
    *("created_at", "started_at", "ended_at", "ran_seconds"),
)
"""The fields of a job to send, without its command and environment, which may contain secrets."""


@dataclass(frozen=True)
class Message:
    """A message to a receiver. `id` is the same for every attempt to send it; `at` is the time of the event."""

    id: str
    type: str
    job: str | None
    at: float
    body: bytes


def next_event(conn: Connection, hook: Hook, after: int, upto: int) -> Row | None:
    """Return the first event for this hook after the cursor `after` and up to `upto`, or None."""
    types = [event.value for event in hook.events]
    return _NEXT.first(conn, after=after, upto=upto, types=types, in_project=hook.project)


def event_message(conn: Connection, hook: Hook, event: Row, now: float) -> Message:
    job = _job_fields(conn, str(event["job"]), now)
    data = {"event": event_view(dict(event), with_job=False).as_json(), "job": job}
    kind = f"job.{event['type']}"
    body = _slack(event, job) if hook.format is HookFormat.SLACK else _body(kind, event["at"], data)
    id = _message_id(hook.id, event["job"], event["n"], kind, event["at"])
    return Message(id, kind, event["job"], event["at"], body)


def ping_message(hook: Hook, now: float) -> Message:
    data = {"hook": hook.id, "project": hook.project}
    text = f"Crucible can reach this address: hook {hook.id} of the project {hook.project}."
    body = _json({"text": text}) if hook.format is HookFormat.SLACK else _body(PING, now, data)
    return Message(_message_id(hook.id, PING, now), PING, None, now, body)


def _message_id(*parts: object) -> str:
    """Return an id from the content: the same after a restart, but another if a restored database reuses numbers."""
    return "msg_" + hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _job_fields(conn: Connection, job: str, now: float) -> dict[str, object]:
    """Return the fields of the job as it is now, which may be later than the event."""
    try:
        view = queries.read_job(conn, job, now).as_json()
    except NotFound:
        return {"id": job, "short": short(job)}
    return {name: view[name] for name in _JOB_FIELDS}


def _body(kind: str, at: object, data: Mapping[str, object]) -> bytes:
    return _json({"type": kind, "timestamp": iso(at), "data": data})


def _slack(event: Row, job: Mapping[str, object]) -> bytes:
    reason, cost = job.get("reason"), job.get("cost")
    name = f"{job.get('name') or 'Job'} ({job['short']})"
    parts = [f"{_escape(name)} in {job.get('project')}: {str(event['type']).replace('_', ' ')}"]
    parts += [_escape(str(reason["message"]))] if isinstance(reason, Mapping) and event["type"] == "failed" else []
    parts += [str(cost["usd"])] if isinstance(cost, Mapping) and cost.get("micros") else []
    return _json({"text": " · ".join(parts)})


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=str).encode()
